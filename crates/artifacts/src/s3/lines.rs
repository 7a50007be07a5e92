//! Lines on a store that cannot append: every line is an object, and the file is made of them.
//!
//! A line of `run/events.jsonl` is `run/.lines/events.jsonl/<hash of its marker's path>`, so of many
//! who append the same one, one creates it. It begins with when it came, by which lines are put in
//! order. Names with a dot first are no paths of artifacts, so nobody lists or overwrites them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use admit_core::hash::sha256_hex;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{ObjectStore as _, ObjectStoreExt as _};

use super::{KEY_BYTES_MAX, Store, store_error};
use crate::port::{ArtifactsError, File, Line, Markers, Put};

/// Files with this ending are read from their lines, so that a reader sees every line at once.
const ENDING: &str = ".jsonl";

/// Most lines of one file.
const LINES_MAX: usize = 100_000;

/// Digits of when a line came: milliseconds, then its place among those of one process.
const ORDER_BYTES: usize = 15 + 1 + 20;

impl Store {
    /// Appends lines one after the other, each with its own answer.
    pub(super) async fn append(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> Vec<Result<Put, ArtifactsError>> {
        let mut answers = Vec::with_capacity(lines.len());
        for line in lines {
            answers.push(self.append_one(path, line, markers).await);
        }
        answers
    }

    /// The line first, then its marker: whoever dies in between has appended it, and whoever comes
    /// next makes the marker.
    async fn append_one(
        &self,
        path: &str,
        line: Line,
        markers: Markers,
    ) -> Result<Put, ArtifactsError> {
        self.may_write(path)?;
        if line.text.is_empty() || line.text.contains(&b'\n') {
            return Err(ArtifactsError::NotALine { path: path.to_owned() });
        }
        self.check_file(&line.marker)?;
        let name = sha256_hex(line.marker.path.as_bytes());
        let place = format!("{}/{name}", folder(path));
        if self.place.key(&place).len() > KEY_BYTES_MAX {
            let reason = "it is too long for a file of lines in a bucket";
            return Err(ArtifactsError::NotAPath { path: path.to_owned(), reason });
        }
        let nth = self.lines.fetch_add(1, Ordering::Relaxed);
        let order = format!("{:015} {nth:020}\n", self.clock.now().0.max(0));
        let bytes = [order.as_bytes(), &line.text[..]].concat();
        let put = self.create(&File::new(place, bytes)).await?;
        match markers {
            Markers::Believed => self.create(&line.marker).await.map(drop)?,
            // It may be as damaged as the line might have been.
            Markers::Doubted => self.replace(&line.marker).await?,
        }
        Ok(put)
    }

    /// Writes the file from its lines, over whatever is there.
    pub(super) async fn compose(&self, path: &str) -> Result<(), ArtifactsError> {
        self.may_write(path)?;
        match self.composed(path).await? {
            Some(bytes) => self.replace(&File::new(path, bytes)).await,
            None => Ok(()),
        }
    }

    /// The file as its lines make it; `None` if it has none.
    pub(super) async fn composed(&self, path: &str) -> Result<Option<Bytes>, ArtifactsError> {
        if !path.ends_with(ENDING) {
            return Ok(None);
        }
        let mut lines = self.trying("read", path, || self.read_lines(path)).await?;
        if lines.is_empty() {
            return Ok(None);
        }
        lines.sort_unstable();
        let mut text = Vec::new();
        for (_, line) in lines {
            let damaged = || std::io::Error::other("a line of it is damaged");
            let line = line.get(ORDER_BYTES + 1..);
            text.extend_from_slice(line.ok_or_else(|| store_error("read", path, damaged()))?);
            text.push(b'\n');
        }
        self.check_size(path, text.len() as u64)?;
        Ok(Some(text.into()))
    }

    /// The lines as they are stored, each with its name. In any order.
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
            // The time first, so that sorting puts them in order.
            Ok((bytes.slice(..bytes.len().min(ORDER_BYTES)), bytes))
        };
        let read: Vec<_> =
            keys.into_iter().map(|key| read(Arc::clone(&self.objects), key)).collect();
        stream::iter(read).buffer_unordered(self.in_flight).try_collect().await
    }
}

/// Where the lines of a file are.
fn folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}.lines/{name}")
}
