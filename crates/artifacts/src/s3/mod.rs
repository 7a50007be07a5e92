//! Artifacts in a bucket: every file an object, created only where there is none.
//!
//! A conditional create fails where a key exists, in one step, whoever races; so the first writer
//! wins, also among several machines. An object that was acknowledged is durable, so a
//! [`sync`](crate::Artifacts::sync) has nothing left to wait for. A request that failed is tried
//! again a few times: every request here may be repeated, because what is put never differs.
//!
//! It wants a service that knows `If-None-Match: *`; one that overwrites instead is found out when
//! the store is first probed.

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

pub use connect::{Access, Keys, OpenError, Place, PlaceError, connect};
pub use list::LIST_ROWS_MAX;

/// The pause before a request is tried again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// With it the longest path stays below the 1024 bytes that a key may have.
const PREFIX_BYTES_MAX: usize = 120;
/// The longest key.
const KEY_BYTES_MAX: usize = 1024;

/// Written twice by a probe, to see that the second is refused.
const CREATE_PROBE: &str = ".probe/created-once";

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Where it is.
    pub place: Place,
    /// How it is reached.
    pub access: Access,
    /// Largest file that is put or read, in bytes.
    pub file_bytes_max: u64,
    /// Most requests of one call at a time.
    pub in_flight: usize,
    /// When lines come, by which they are put in order.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// The defaults, at `place`.
    pub fn new(place: Place, clock: Arc<dyn Clock>) -> Self {
        let access = Access::default();
        Self { place, access, file_bytes_max: 16 << 20, in_flight: 32, clock }
    }
}

/// Artifacts in a bucket.
#[derive(Clone)]
pub struct S3Artifacts {
    store: Arc<Store>,
}

struct Store {
    objects: Arc<AmazonS3>,
    place: Place,
    file_bytes_max: u64,
    in_flight: usize,
    tries_max: u32,
    clock: Arc<dyn Clock>,
    is_reading: bool,
    /// Lines this process has appended.
    lines: AtomicU64,
    /// Whether the service was seen to refuse a second create.
    creates_once: AtomicBool,
}

impl S3Artifacts {
    /// A store for reading and writing. It connects with the first request.
    ///
    /// # Errors
    /// When the settings cannot be those of any service.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        Self::new(options, false)
    }

    /// A store that is only read.
    ///
    /// # Errors
    /// When the settings cannot be those of any service.
    pub fn reading(options: Options) -> Result<Self, OpenError> {
        Self::new(options, true)
    }

    fn new(options: Options, is_reading: bool) -> Result<Self, OpenError> {
        let Options { place, access, file_bytes_max, in_flight, clock } = options;
        if place.prefix().len() > PREFIX_BYTES_MAX {
            return Err(OpenError::LongPrefix { bytes_max: PREFIX_BYTES_MAX });
        }
        let store = Store {
            objects: connect(&place, &access)?,
            place,
            file_bytes_max,
            in_flight: in_flight.max(1),
            tries_max: access.tries_max.get(),
            clock,
            is_reading,
            lines: AtomicU64::new(0),
            creates_once: AtomicBool::new(false),
        };
        Ok(Self { store: Arc::new(store) })
    }

    /// Writes files, several at a time, each with its own answer, in order.
    async fn each<T, W>(
        &self,
        files: Vec<File>,
        write: impl Fn(Arc<Store>, File) -> W,
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
            // Of files with one path the first of the batch wins, so they do not race.
            let (files, places) = firsts(files);
            let create = |store: Arc<Store>, file: File| async move { store.create(&file).await };
            let puts = self.each(files, create).await;
            let mut puts: Vec<_> = puts.into_iter().map(Some).collect();
            let answers = places.into_iter().map(|place| match puts[place].take() {
                Some(put) => {
                    if put.is_ok() {
                        puts[place] = Some(Ok(Put::Existed));
                    }
                    put
                }
                None => Err(twice_failed()),
            });
            answers.collect()
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
        let replace = |store: Arc<Store>, file: File| async move { store.replace(&file).await };
        Box::pin(self.each(files, replace))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let synced = if self.store.is_reading { Err(ArtifactsError::ReadOnly) } else { Ok(()) };
        Box::pin(std::future::ready(synced))
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let file = File::new(path, bytes);
        Box::pin(async move {
            self.store.may_write(&file.path)?;
            self.store.check_creates_once().await?;
            self.store.replace(&file).await
        })
    }
}

/// Each path once, and for every file which of them is its.
fn firsts(files: Vec<File>) -> (Vec<File>, Vec<usize>) {
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

fn twice_failed() -> ArtifactsError {
    let source = io::Error::other("the first of this name in the batch could not be written");
    store_error("write", "a second file of one name", source)
}

impl Store {
    /// Whether something may be written there.
    fn may_write(&self, path: &str) -> Result<(), ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::NotAPath { path: path.to_owned(), reason })?;
        if self.is_reading { Err(ArtifactsError::ReadOnly) } else { Ok(()) }
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

    /// Creates an object where there is none.
    async fn create(&self, file: &File) -> Result<Put, ArtifactsError> {
        let path = &file.path;
        // What is the store's own was made by us and needs no check.
        if !is_own(path) {
            self.check_file(file)?;
        }
        self.trying("write", path, || async move {
            let key = self.key(path)?;
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.objects.put_opts(&key, payload(file), options).await {
                Ok(_) => Ok(Put::Created),
                // A service may also say so while somebody else is only trying: then it is looked
                // for, and tried again if it is not there.
                Err(object_store::Error::AlreadyExists { .. }) => {
                    self.objects.head(&key).await.map(|_| Put::Existed)
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Puts an object there in one step, over whatever is there.
    async fn replace(&self, file: &File) -> Result<(), ArtifactsError> {
        self.check_file(file)?;
        self.trying("write", &file.path, || async move {
            let (key, options) = (self.key(&file.path)?, PutOptions::default());
            self.objects.put_opts(&key, payload(file), options).await.map(drop)
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<Option<Bytes>, ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::NotAPath { path: path.to_owned(), reason })?;
        if let Some(composed) = self.composed(path).await? {
            return Ok(Some(composed));
        }
        let read = self.trying("read", path, || async move {
            let key = self.key(path)?;
            let read = match self.objects.get(&key).await {
                Ok(read) => read,
                // Without its bucket nobody knows whether a file was there.
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

    /// Makes sure, once, that the service keeps what is there when it is asked to create.
    async fn check_creates_once(&self) -> Result<(), ArtifactsError> {
        if self.creates_once.load(Ordering::Relaxed) {
            return Ok(());
        }
        let file = File::new(CREATE_PROBE, "first writers win\n");
        self.create(&file).await?;
        if self.create(&file).await? == Put::Created {
            let source = "the service overwrites what exists; it cannot keep artifacts";
            return Err(store_error(
                "create once in",
                &self.place.to_string(),
                io::Error::other(source),
            ));
        }
        self.creates_once.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tries a request until it is answered, or it is not worth it.
    async fn trying<T, R>(
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
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if tries >= self.tries_max || is_final(&error) {
                return Err(store_error(doing, path, io::Error::other(told(&error))));
            }
            tracing::debug!(doing, path, tries, %error, "a request to the bucket failed, trying again");
            tries += 1;
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// An error with everything that caused it. That nobody listens is told last.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = with_causes(error);
    // The last place where credentials are looked for: there were none before.
    if text.contains("/latest/api/token") || text.contains("/latest/meta-data/") {
        text.push_str(
            "; no credentials are in the environment and this machine has no role that gives any: \
             set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or see docs/artifacts/s3.md",
        );
    }
    text
}

/// Whether the service says that there is no such bucket.
fn is_without_bucket(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { source, .. }
        if source.to_string().contains("<Code>NoSuchBucket</Code>"))
}

/// Whether asking again cannot help.
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

/// Whether a path is one of those that only the store makes.
fn is_own(path: &str) -> bool {
    path.split('/').any(|name| matches!(name, ".lines" | ".probe"))
}

fn payload(file: &File) -> PutPayload {
    PutPayload::from_bytes(file.bytes.clone())
}

fn store_error(doing: &'static str, path: &str, source: io::Error) -> ArtifactsError {
    ArtifactsError::Store { doing, path: path.to_owned(), source }
}
