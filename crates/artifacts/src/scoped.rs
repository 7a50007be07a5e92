//! Artifact store restricted to the folders of one writer.
//!
//! Runner, streamer and gate share one store. Each holds a handle that writes below its own folders
//! of a run only, so that a bug in one cannot affect files of another.

use std::sync::Arc;

use bytes::Bytes;

use crate::port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};

/// Reason of a rejected write.
const OUT_OF_SCOPE: &str = "outside of the folders of this writer";

/// Handle that reads everything and writes below some folders of a run only.
#[derive(Clone)]
pub struct ScopedArtifacts {
    inner: Arc<dyn Artifacts>,
    prefix: String,
    folders: &'static [&'static str],
}

impl ScopedArtifacts {
    /// Creates a handle for writing below `<prefix><run>/<folder>/` for each of the folders, in any
    /// run.
    pub fn new(
        inner: Arc<dyn Artifacts>,
        prefix: impl Into<String>,
        folders: &'static [&'static str],
    ) -> Self {
        Self { inner, prefix: prefix.into(), folders }
    }

    fn may_write(&self, path: &str) -> bool {
        let below = path.strip_prefix(&self.prefix).and_then(|path| path.split_once('/'));
        below.is_some_and(|(_, rest)| {
            let is_in =
                |folder: &&str| rest.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
            self.folders.iter().any(is_in)
        })
    }

    fn check(&self, path: &str) -> Result<(), ArtifactsError> {
        if self.may_write(path) {
            return Ok(());
        }
        Err(ArtifactsError::InvalidPath { path: path.to_owned(), reason: OUT_OF_SCOPE })
    }

    /// Passes the allowed files to `write` and merges the results in order.
    async fn write_allowed<T>(
        &self,
        files: Vec<File>,
        write: impl AsyncFnOnce(Vec<File>) -> Vec<Result<T, ArtifactsError>>,
    ) -> Vec<Result<T, ArtifactsError>> {
        let refused: Vec<_> = files.iter().map(|file| self.check(&file.path).err()).collect();
        let allowed = files.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let written = write(allowed.map(|(file, _)| file).collect()).await;
        let mut written = written.into_iter();
        let missing = || ArtifactsError::NotSynced { source: None };
        refused
            .into_iter()
            .map(|refused| match refused {
                Some(error) => Err(error),
                None => written.next().unwrap_or_else(|| Err(missing())),
            })
            .collect()
    }
}

impl Artifacts for ScopedArtifacts {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        Box::pin(self.write_allowed(files, async |files| self.inner.put_if_absent(files).await))
    }

    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        self.inner.get(path)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        self.inner.list(prefix, after, rows_max)
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        let stray = lines.iter().find(|line| !self.may_write(&line.marker.path));
        let wrong =
            if self.may_write(path) { stray.map(|line| &*line.marker.path) } else { Some(path) };
        if let Some(wrong) = wrong {
            let refused = lines.iter().map(|_| {
                Err(ArtifactsError::InvalidPath { path: wrong.to_owned(), reason: OUT_OF_SCOPE })
            });
            let refused = refused.collect();
            return Box::pin(async move { refused });
        }
        self.inner.append_lines(path, lines, markers)
    }

    fn compose(&self, path: &str) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        match self.check(path) {
            Ok(()) => self.inner.compose(path),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(self.write_allowed(files, async |files| self.inner.restore(files).await))
    }

    fn show(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(self.write_allowed(files, async |files| self.inner.show(files).await))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.inner.sync()
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        match self.check(path) {
            Ok(()) => self.inner.probe(path, bytes),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}
