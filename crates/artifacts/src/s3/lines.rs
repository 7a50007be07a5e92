//! Lines on a store without append: every line is an object, and the file is composed of them.
//!
//! A line of `run/events.jsonl` is `run/.lines/events.jsonl/<hash of its marker's path>`, so of
//! several writers of the same line one creates it. It begins with its arrival time, which gives
//! the order of lines. Names with a leading dot are not artifact paths, so they are never listed or
//! overwritten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use admit_core::hash::sha256_hex;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{ObjectStore as _, ObjectStoreExt as _};

use super::{KEY_BYTES_MAX, S3Store, store_error};
use crate::port::{ArtifactsError, File, Line, Markers, Put};

/// Files with this ending are read from their lines, so that a reader sees every line immediately.
const ENDING: &str = ".jsonl";

/// Maximum number of lines per file.
const LINES_MAX: usize = 100_000;

/// Length of the order prefix: milliseconds, then a counter per process.
const ORDER_BYTES: usize = 15 + 1 + 20;

impl S3Store {
    /// Appends lines one by one, with one result per line.
    pub(super) async fn append(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> Vec<Result<Put, ArtifactsError>> {
        let mut results = Vec::with_capacity(lines.len());
        for line in lines {
            results.push(self.append_one(path, line, markers).await);
        }
        results
    }

    /// Creates the line first, then its marker: after a crash in between the line is appended, and
    /// the next attempt creates the marker.
    async fn append_one(
        &self,
        path: &str,
        line: Line,
        markers: Markers,
    ) -> Result<Put, ArtifactsError> {
        self.may_write(path)?;
        if line.text.is_empty() || line.text.contains(&b'\n') {
            return Err(ArtifactsError::InvalidLine { path: path.to_owned() });
        }
        self.check_file(&line.marker)?;
        let name = sha256_hex(line.marker.path.as_bytes());
        let place = format!("{}/{name}", folder(path));
        if self.place.key(&place).len() > KEY_BYTES_MAX {
            let reason = "too long for a file of lines in a bucket";
            return Err(ArtifactsError::InvalidPath { path: path.to_owned(), reason });
        }
        let nth = self.lines.fetch_add(1, Ordering::Relaxed);
        let order = format!("{:015} {nth:020}\n", self.clock.now().0.max(0));
        let bytes = [order.as_bytes(), &line.text[..]].concat();
        let put = self.create(&File::new(place, bytes)).await?;
        match markers {
            Markers::Trusted => self.create(&line.marker).await.map(drop)?,
            // The marker may be damaged, too.
            Markers::Verified => self.replace(&line.marker).await?,
        }
        Ok(put)
    }

    /// Writes the file from its lines, replacing an existing one.
    pub(super) async fn compose(&self, path: &str) -> Result<(), ArtifactsError> {
        self.may_write(path)?;
        match self.composed(path).await? {
            Some(bytes) => self.replace(&File::new(path, bytes)).await,
            None => Ok(()),
        }
    }

    /// Composes the file from its lines; `None` if there are none.
    pub(super) async fn composed(&self, path: &str) -> Result<Option<Bytes>, ArtifactsError> {
        if !path.ends_with(ENDING) {
            return Ok(None);
        }
        let mut lines = self.retrying("read", path, || self.read_lines(path)).await?;
        if lines.is_empty() {
            return Ok(None);
        }
        lines.sort_unstable();
        let mut text = Vec::new();
        for (_, line) in lines {
            let damaged = || std::io::Error::other("a line of the file is damaged");
            let line = line.get(ORDER_BYTES + 1..);
            text.extend_from_slice(line.ok_or_else(|| store_error("read", path, damaged()))?);
            text.push(b'\n');
        }
        self.check_size(path, text.len() as u64)?;
        Ok(Some(text.into()))
    }

    /// Loads the stored lines with their order prefix, unordered.
    async fn read_lines(&self, path: &str) -> Result<Vec<(Bytes, Bytes)>, object_store::Error> {
        let folder = self.key(&folder(path))?;
        let keys: Vec<Key> = self
            .objects
            .list(Some(&folder))
            .map_ok(|object| object.location)
            .take(LINES_MAX + 1)
            .try_collect()
            .await?;
        if keys.len() > LINES_MAX {
            let source = format!("it has more than {LINES_MAX} lines").into();
            return Err(object_store::Error::Generic { store: "s3", source });
        }
        let read = |objects: Arc<AmazonS3>, key: Key| async move {
            let bytes = objects.get(&key).await?.bytes().await?;
            // The time first, for sorting.
            Ok((bytes.slice(..bytes.len().min(ORDER_BYTES)), bytes))
        };
        let read: Vec<_> =
            keys.into_iter().map(|key| read(Arc::clone(&self.objects), key)).collect();
        stream::iter(read).buffer_unordered(self.in_flight).try_collect().await
    }
}

/// Folder of the lines of a file.
fn folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}.lines/{name}")
}
