//! Artifacts port.
//!
//! Invariant: an artifact is complete under its name or does not exist, and no writer changes an
//! existing one. Files lost in a power cut before [`Artifacts::sync`] are restored by
//! [`Artifacts::restore`] from the ledger.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;

/// Boxed future, one per batch, so its cost is negligible.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Store of write-once files. Several processes may share a store.
pub trait Artifacts: Send + Sync {
    /// Creates files that do not exist yet. Returns one result per file, in order; when it
    /// resolves, each file is complete under its name for every reader. Existing files are never
    /// overwritten: the first writer wins, the others get [`Put::Existed`].
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>>;

    /// Reads a file; `None` if it does not exist.
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>>;

    /// Lists paths with `prefix` after `after`, in byte order, at most `rows_max`.
    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>>;

    /// Appends lines to the file `path`, each once: a line whose marker exists was appended before.
    /// Returns one result per line, in order.
    ///
    /// A store without append stores every line as a separate object, named after its marker, and
    /// builds `path` from them in [`compose`](Self::compose); that is why every line has a marker.
    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>>;

    /// Builds the file `path` from all appended lines, for readers that bypass this port. No-op for
    /// stores that append; [`get`](Self::get) returns every line in any case.
    fn compose(&self, path: &str) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let _ = path;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Restores files after a crash: replaces each file atomically with the content from the
    /// ledger. Only at start, before other writes.
    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>>;

    /// Replaces a status file atomically with a newer copy of the ledger's state. Only for names
    /// that are never put or appended to, and only by the lease holder of the subject; the ledger
    /// stays authoritative, and the next update corrects a stale copy.
    fn show(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        self.restore(files)
    }

    /// Makes all earlier puts durable. After an error nothing put since the last success is known
    /// to be durable: the next start must restore it.
    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>>;

    /// Overwrites a file to check that the store is writable. Apart from [`show`](Self::show), the
    /// only write that changes an existing file.
    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>>;
}

/// File with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path relative to the root, with `/`; see [`crate::path`] for the rules.
    pub path: String,
    /// Content.
    pub bytes: Bytes,
}

impl File {
    /// Creates a file.
    pub fn new(path: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

/// Result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Created by this call.
    Created,
    /// Existed before, unchanged.
    Existed,
}

/// Line to append once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Text without newline.
    pub text: Bytes,
    /// File that marks the line as appended.
    pub marker: File,
}

/// Trust in line markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// A line whose marker exists was appended.
    Trusted,
    /// After a crash a marker may exist without its line: every line is searched in the file and
    /// appended if missing.
    Verified,
}

/// Error while writing or reading an artifact.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// Invalid path.
    #[error("invalid artifact path {path:?}: {reason}")]
    InvalidPath {
        /// Path.
        path: String,
        /// Reason.
        reason: &'static str,
    },
    /// Artifact exceeds the size limit.
    #[error("artifact {path} is too large: {bytes} bytes, limit {bytes_max}")]
    TooLarge {
        /// Path.
        path: String,
        /// Size.
        bytes: u64,
        /// Limit.
        bytes_max: u64,
    },
    /// Empty line, or a line with a newline.
    #[error("invalid line for {path}: empty or contains a newline")]
    InvalidLine {
        /// Path.
        path: String,
    },
    /// The store failed. The message contains the cause, because logs often show no more than this.
    #[error("artifact store: failed to {doing} {path}: {source}")]
    Store {
        /// Operation: `write`, `read`,
        doing: &'static str,
        /// Path.
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A sync failed, now or earlier: files put since the last success must be restored by the next
    /// start.
    #[error(
        "the artifact store failed to sync; files written since are in the ledger and are restored at the next start"
    )]
    NotSynced {
        /// Cause, for the first failure.
        #[source]
        source: Option<io::Error>,
    },
    /// The store is read-only.
    #[error("the artifact store is read-only")]
    ReadOnly,
}
