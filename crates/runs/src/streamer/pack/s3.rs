//! Pack in an S3 bucket: small files are read completely, large ones by ranges.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::s3::{Access, S3Location, connect};
use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::source::{RangeReader, RemoteFile, Source};
use super::store::{NAMES_MAX, PackStore, SMALL_BYTES_MAX};

/// Initial and maximum backoff of a request.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Pack in a bucket. Must be used where blocking is allowed, within the runtime it was created in.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<AmazonS3>,
    location: S3Location,
    tries_max: u32,
    runtime: Handle,
}

impl Bucket {
    /// The pack at this location.
    ///
    /// # Errors
    /// When the settings are invalid, or there is no runtime.
    pub fn open(location: S3Location, access: &Access) -> io::Result<Self> {
        let objects = connect(&location, access).map_err(io::Error::other)?;
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        Ok(Self { objects, location, tries_max: access.tries_max.get(), runtime })
    }

    fn key(&self, path: &str) -> io::Result<Key> {
        Key::parse(self.location.key(path)).map_err(io::Error::other)
    }

    /// Runs a request with retries; `None` if the object does not exist.
    fn retry<T, R>(&self, request: impl Fn() -> R) -> io::Result<Option<T>>
    where
        R: Future<Output = Result<T, object_store::Error>>,
    {
        self.runtime.block_on(async {
            let (mut pause, mut tries) = (BACKOFF_MIN, 1);
            loop {
                use object_store::Error as E;
                let error = match request().await {
                    Ok(response) => return Ok(Some(response)),
                    Err(E::NotFound { .. }) => return Ok(None),
                    Err(error) => error,
                };
                let is_final = matches!(
                    error,
                    E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::Precondition { .. }
                );
                if is_final || tries >= self.tries_max {
                    return Err(io::Error::other(error));
                }
                tracing::debug!(%error, tries, "failed to read from a pack; retrying");
                tries += 1;
                sleep(pause).await;
                pause = BACKOFF_MAX.min(pause * 2);
            }
        })
    }
}

impl PackStore for Bucket {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let key = self.key(path)?;
        let read = self.retry(|| async {
            let read = self.objects.get(&key).await?;
            match read.meta.size > SMALL_BYTES_MAX {
                true => Ok(None),
                false => read.bytes().await.map(Some),
            }
        })?;
        match read {
            None => Ok(None),
            Some(Some(bytes)) => Ok(Some(bytes.to_vec())),
            Some(None) => {
                Err(io::Error::other(format!("it has more than {SMALL_BYTES_MAX} bytes")))
            }
        }
    }

    fn names(&self, folder: &str) -> io::Result<Option<Vec<String>>> {
        let key = self.key(folder)?;
        let listed = self.retry(|| self.objects.list_with_delimiter(Some(&key)))?;
        let Some(listed) = listed else { return Ok(None) };
        let files = listed.objects.iter().map(|object| &object.location);
        let names = files.chain(&listed.common_prefixes).filter_map(Key::filename);
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        if names.len() > NAMES_MAX {
            return Err(io::Error::other(format!("it has more than {NAMES_MAX} files")));
        }
        names.sort_unstable();
        names.dedup();
        Ok(Some(names).filter(|names| !names.is_empty()))
    }

    fn open(&self, path: &str) -> io::Result<Source> {
        let key = self.key(path)?;
        let found = self.retry(|| self.objects.head(&key))?;
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        let object =
            BucketObject { bucket: self.clone(), key, bytes: found.size, tag: found.e_tag };
        Ok(Source::Remote(RemoteFile::new(Arc::new(object))))
    }
}

/// A large file. If it is replaced while it is read, reads fail (`if_match`).
struct BucketObject {
    bucket: Bucket,
    key: Key,
    bytes: u64,
    tag: Option<String>,
}

impl RangeReader for BucketObject {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let range: Range<u64> = start..start + length as u64;
        let read = self.bucket.retry(|| async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                if_match: self.tag.clone(),
                ..GetOptions::default()
            };
            self.bucket.objects.get_opts(&self.key, options).await?.bytes().await
        })?;
        read.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
