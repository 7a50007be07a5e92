//! Artifacts in an S3 bucket: every file is an object, created conditionally.
//!
//! A conditional create is atomic and fails if the key exists; so the first writer wins, also among
//! several machines. An acknowledged object is durable, so [`sync`](crate::Artifacts::sync) is a
//! no-op. Failed requests are retried a few times: every request here is idempotent, because the
//! content of a path never differs.
//!
//! Requires a service that supports `If-None-Match: *`; a service that overwrites instead is
//! detected by the first probe.

mod connect;
mod lines;
mod list;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use admit_core::{Clock, with_causes};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::aws::AmazonS3;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use tokio::time::sleep;

use crate::path;
use crate::port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};

pub use connect::{Access, OpenError, S3Keys, S3Location, S3LocationError, connect};
pub use list::LIST_ROWS_MAX;

/// Backoff between retries, initial and maximum.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Keeps the longest key below the 1024 bytes allowed by S3.
const PREFIX_BYTES_MAX: usize = 120;
/// Maximum length of a key.
const KEY_BYTES_MAX: usize = 1024;

/// Written twice by a probe, to check that the second create fails.
const CREATE_PROBE: &str = ".probe/created-once";

/// Options of a store.
#[derive(Clone)]
pub struct Options {
    /// Location.
    pub place: S3Location,
    /// Access settings.
    pub access: Access,
    /// Maximum file size in bytes.
    pub file_bytes_max: u64,
    /// Maximum number of concurrent requests per call.
    pub in_flight: usize,
    /// Clock for the order of lines.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Defaults, at `place`.
    pub fn new(place: S3Location, clock: Arc<dyn Clock>) -> Self {
        let access = Access::default();
        Self { place, access, file_bytes_max: 16 << 20, in_flight: 32, clock }
    }
}

/// Artifact store in a bucket.
#[derive(Clone)]
pub struct S3Artifacts {
    store: Arc<S3Store>,
}

struct S3Store {
    objects: Arc<AmazonS3>,
    place: S3Location,
    file_bytes_max: u64,
    in_flight: usize,
    tries_max: u32,
    clock: Arc<dyn Clock>,
    is_read_only: bool,
    /// Number of lines appended by this process.
    lines: AtomicU64,
    /// Whether the service is known to reject a second create.
    has_conditional_create: AtomicBool,
}

impl S3Artifacts {
    /// Opens a store for reading and writing. It connects with the first request.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        Self::new(options, false)
    }

    /// Opens a read-only store.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn open_read_only(options: Options) -> Result<Self, OpenError> {
        Self::new(options, true)
    }

    fn new(options: Options, is_read_only: bool) -> Result<Self, OpenError> {
        let Options { place, access, file_bytes_max, in_flight, clock } = options;
        if place.prefix().len() > PREFIX_BYTES_MAX {
            return Err(OpenError::LongPrefix { bytes_max: PREFIX_BYTES_MAX });
        }
        let store = S3Store {
            objects: connect(&place, &access)?,
            place,
            file_bytes_max,
            in_flight: in_flight.max(1),
            tries_max: access.tries_max.get(),
            clock,
            is_read_only,
            lines: AtomicU64::new(0),
            has_conditional_create: AtomicBool::new(false),
        };
        Ok(Self { store: Arc::new(store) })
    }

    /// Writes files concurrently, with one result per file, in order.
    async fn each<T, W>(
        &self,
        files: Vec<File>,
        write: impl Fn(Arc<S3Store>, File) -> W,
    ) -> Vec<Result<T, ArtifactsError>>
    where
        W: Future<Output = Result<T, ArtifactsError>> + Send,
    {
        let written: Vec<W> =
            files.into_iter().map(|file| write(Arc::clone(&self.store), file)).collect();
        stream::iter(written).buffered(self.store.in_flight).collect().await
    }
}

impl Artifacts for S3Artifacts {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        Box::pin(async move {
            // Of several files with the same path the first of the batch wins, without a race.
            let (files, places) = deduplicated(files);
            let create = |store: Arc<S3Store>, file: File| async move { store.create(&file).await };
            let puts = self.each(files, create).await;
            let mut puts: Vec<_> = puts.into_iter().map(Some).collect();
            let results = places.into_iter().map(|place| match puts[place].take() {
                Some(put) => {
                    if put.is_ok() {
                        puts[place] = Some(Ok(Put::Existed));
                    }
                    put
                }
                None => Err(first_copy_failed()),
            });
            results.collect()
        })
    }

    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        let path = path.to_owned();
        Box::pin(async move { self.store.get(&path).await })
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move { self.store.list(&prefix, after.as_deref(), rows_max).await })
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        let path = path.to_owned();
        Box::pin(async move { self.store.append(&path, lines, markers).await })
    }

    fn compose(&self, path: &str) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let path = path.to_owned();
        Box::pin(async move { self.store.compose(&path).await })
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        let replace = |store: Arc<S3Store>, file: File| async move { store.replace(&file).await };
        Box::pin(self.each(files, replace))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let synced = if self.store.is_read_only { Err(ArtifactsError::ReadOnly) } else { Ok(()) };
        Box::pin(std::future::ready(synced))
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let file = File::new(path, bytes);
        Box::pin(async move {
            self.store.may_write(&file.path)?;
            self.store.check_conditional_create().await?;
            self.store.replace(&file).await
        })
    }
}

/// Deduplicates files by path, and returns the index of each file's representative.
fn deduplicated(files: Vec<File>) -> (Vec<File>, Vec<usize>) {
    let mut known = std::collections::HashMap::new();
    let mut kept: Vec<File> = Vec::with_capacity(files.len());
    let mut places = Vec::with_capacity(files.len());
    for file in files {
        let place = *known.entry(file.path.clone()).or_insert(kept.len());
        if place == kept.len() {
            kept.push(file);
        }
        places.push(place);
    }
    (kept, places)
}

fn first_copy_failed() -> ArtifactsError {
    let source =
        io::Error::other("the first file with this path in the batch could not be written");
    store_error("write", "a duplicate file of a batch", source)
}

impl S3Store {
    /// Checks that `path` is writable.
    fn may_write(&self, path: &str) -> Result<(), ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::InvalidPath { path: path.to_owned(), reason })?;
        if self.is_read_only { Err(ArtifactsError::ReadOnly) } else { Ok(()) }
    }

    fn check_file(&self, file: &File) -> Result<(), ArtifactsError> {
        self.may_write(&file.path)?;
        self.check_size(&file.path, file.bytes.len() as u64)
    }

    fn check_size(&self, path: &str, bytes: u64) -> Result<(), ArtifactsError> {
        let bytes_max = self.file_bytes_max;
        if bytes > bytes_max {
            return Err(ArtifactsError::TooLarge { path: path.to_owned(), bytes, bytes_max });
        }
        Ok(())
    }

    /// Creates an object if it does not exist.
    async fn create(&self, file: &File) -> Result<Put, ArtifactsError> {
        let path = &file.path;
        // Internal files need no check.
        if !is_own(path) {
            self.check_file(file)?;
        }
        self.retrying("write", path, || async move {
            let key = self.key(path)?;
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.objects.put_opts(&key, payload(file), options).await {
                Ok(_) => Ok(Put::Created),
                // Some services also return this while another create is in progress: then check
                // for the object and retry if it is missing.
                Err(object_store::Error::AlreadyExists { .. }) => {
                    self.objects.head(&key).await.map(|_| Put::Existed)
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Atomically writes or replaces an object.
    async fn replace(&self, file: &File) -> Result<(), ArtifactsError> {
        self.check_file(file)?;
        self.retrying("write", &file.path, || async move {
            let (key, options) = (self.key(&file.path)?, PutOptions::default());
            self.objects.put_opts(&key, payload(file), options).await.map(drop)
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<Option<Bytes>, ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::InvalidPath { path: path.to_owned(), reason })?;
        if let Some(composed) = self.composed(path).await? {
            return Ok(Some(composed));
        }
        let read = self.retrying("read", path, || async move {
            let key = self.key(path)?;
            let read = match self.objects.get(&key).await {
                Ok(read) => read,
                // A missing bucket must not look like a missing file.
                Err(error @ object_store::Error::NotFound { .. }) if !is_without_bucket(&error) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let size = read.meta.size;
            if size > self.file_bytes_max {
                return Ok(Some((size, Bytes::new())));
            }
            Ok(Some((size, read.bytes().await?)))
        });
        let Some((size, bytes)) = read.await? else { return Ok(None) };
        self.check_size(path, size)?;
        Ok(Some(bytes))
    }

    /// Checks, once, that the service does not overwrite on conditional create.
    async fn check_conditional_create(&self) -> Result<(), ArtifactsError> {
        if self.has_conditional_create.load(Ordering::Relaxed) {
            return Ok(());
        }
        let file = File::new(CREATE_PROBE, "first writers win\n");
        self.create(&file).await?;
        if self.create(&file).await? == Put::Created {
            let source = "the service ignores If-None-Match and overwrites existing objects; it cannot be used as artifact store";
            return Err(store_error(
                "create once in",
                &self.place.to_string(),
                io::Error::other(source),
            ));
        }
        self.has_conditional_create.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs a request with retries until it succeeds or fails permanently.
    async fn retrying<T, R>(
        &self,
        doing: &'static str,
        path: &str,
        request: impl Fn() -> R,
    ) -> Result<T, ArtifactsError>
    where
        R: Future<Output = Result<T, object_store::Error>>,
    {
        let mut pause = PAUSE_MIN;
        let mut tries = 1;
        loop {
            let error = match request().await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if tries >= self.tries_max || is_final(&error) {
                return Err(store_error(doing, path, io::Error::other(describe(&error))));
            }
            tracing::debug!(doing, path, tries, %error, "S3 request failed, retrying");
            tries += 1;
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// Renders an error with its causes, and a hint if no credentials were found.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = with_causes(error);
    // The metadata service is the last source of credentials: all others had none.
    if text.contains("/latest/api/token") || text.contains("/latest/meta-data/") {
        text.push_str(
            "; no credentials in the environment and no role for this machine: \
             set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or see docs/artifacts/s3.md",
        );
    }
    text
}

/// Whether the error is a missing bucket.
fn is_without_bucket(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { source, .. }
        if source.to_string().contains("<Code>NoSuchBucket</Code>"))
}

/// Whether a retry cannot help.
fn is_final(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    is_without_bucket(error)
        || matches!(
            error,
            E::InvalidPath { .. }
                | E::NotSupported { .. }
                | E::NotImplemented { .. }
                | E::PermissionDenied { .. }
                | E::Unauthenticated { .. }
                | E::UnknownConfigurationKey { .. }
        )
}

/// Whether a path is internal to the store.
fn is_own(path: &str) -> bool {
    path.split('/').any(|name| matches!(name, ".lines" | ".probe"))
}

fn payload(file: &File) -> PutPayload {
    PutPayload::from_bytes(file.bytes.clone())
}

fn store_error(doing: &'static str, path: &str, source: io::Error) -> ArtifactsError {
    ArtifactsError::Store { doing, path: path.to_owned(), source }
}
