//! The artifacts port, in our words.
//!
//! Invariant: an artifact is complete under its name or not there at all, and once it is there no
//! writer changes it. What may be lost in a power cut before [`Artifacts::sync`] is put back by
//! [`Artifacts::restore`], from the ledger.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;

/// One boxed future per batch: it costs nothing that matters and keeps the seams plain.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Files that are written once. Several processes may share a store.
pub trait Artifacts: Send + Sync {
    /// Puts files where there are none. Each gets its own answer, in order; when it resolves, the
    /// file is complete under its name for every reader. What is there is never overwritten: the
    /// first writer wins, and the others learn that it exists.
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>>;

    /// The bytes of a file, `None` where there is none.
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>>;

    /// Paths that begin with `prefix` and come after `after`, in byte order, at most `rows_max`.
    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>>;

    /// Appends lines to the file `path`, each once: a line whose marker is there was appended
    /// before. Each gets its own answer, in order.
    ///
    /// A store without appending keeps every line by itself, under the name of its marker, and
    /// writes `path` from them when it is told to [`compose`](Self::compose) it; that is why every
    /// line has one.
    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>>;

    /// Makes the file `path` hold every line that was appended to it, for whoever reads the store
    /// without us. A store that appends has nothing to do; [`get`](Self::get) sees every line anyway.
    fn compose(&self, path: &str) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let _ = path;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Puts files back after a crash: whatever is there is replaced, in one step, by what the ledger
    /// says was there. Only for start, before anybody writes.
    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>>;

    /// Shows how something stands now: the file is replaced in one step by a newer copy of what the
    /// ledger says. Only under names that nobody puts or appends to, and by whoever leads what it is
    /// about; the ledger stays the truth, and the next to look puts a copy right that came too late.
    fn show(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        self.restore(files)
    }

    /// Resolves when everything put before the call is durable. After an error nothing put since
    /// the last success is known to be: it must be restored, by the next start.
    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>>;

    /// Writes a file over whatever is there, to find out whether the store can be written to. Beside
    /// what is [shown](Self::show), the only thing in the store that changes.
    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>>;
}

/// A file and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Relative to the root, with `/`; see [`crate::path`] for what may be one.
    pub path: String,
    /// All of it.
    pub bytes: Bytes,
}

impl File {
    /// A file.
    pub fn new(path: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was put there now.
    Created,
    /// There was one already; it stays as it is.
    Existed,
}

/// A line that is appended once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its text, without the newline.
    pub text: Bytes,
    /// The file that says it was appended.
    pub marker: File,
}

/// Whether markers are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// A line whose marker is there is not looked for.
    Believed,
    /// After a crash a marker may be there without its line: every line is looked for in the file,
    /// and appended if it is not in it.
    Doubted,
}

/// Why an artifact could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// Not a path that could exist.
    #[error("{path:?} cannot be the path of an artifact: {reason}")]
    NotAPath {
        /// The text.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More bytes than an artifact may have.
    #[error("artifact {path} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        /// Where it belongs.
        path: String,
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        bytes_max: u64,
    },
    /// A line that is more than one, or none.
    #[error("a line for {path} holds a newline or nothing")]
    NotALine {
        /// Where it belongs.
        path: String,
    },
    /// The store failed. It says why by itself: what a log shows is often no more than this.
    #[error("artifact store: could not {doing} {path}: {source}")]
    Store {
        /// What it was doing: `write`, `read`, …
        doing: &'static str,
        /// With what.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A sync failed, now or earlier: what was put since the last success must be restored by the
    /// next start.
    #[error(
        "the artifact store could not sync; what was written since is in the ledger and is restored at the next start"
    )]
    NotSynced {
        /// The cause, the first time.
        #[source]
        source: Option<io::Error>,
    },
    /// The store was opened for reading.
    #[error("the artifact store was opened for reading only")]
    ReadOnly,
}
