//! A store that one writer may use only for what is its own.
//!
//! Runner, streamer and gate share one store. Each holds a handle that writes below its own folders
//! of a run and nowhere else, so that no slip of one can touch what another has written.

use std::sync::Arc;

use bytes::Bytes;

use crate::port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};

/// What a refused write is told.
const NOT_OURS: &str = "this writer may not write there";

/// A handle that reads everything and writes only below some folders of a run.
#[derive(Clone)]
pub struct Limited {
    inner: Arc<dyn Artifacts>,
    prefix: String,
    folders: &'static [&'static str],
}

impl Limited {
    /// A handle for writing below `<prefix><run>/<folder>/` for each of the folders, whatever the
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
        Err(ArtifactsError::NotAPath { path: path.to_owned(), reason: NOT_OURS })
    }

    /// Hands the files that may be written to `write`, and puts the answers back in order.
    async fn those_allowed<T>(
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

impl Artifacts for Limited {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        Box::pin(self.those_allowed(files, async |files| self.inner.put_if_absent(files).await))
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
                Err(ArtifactsError::NotAPath { path: wrong.to_owned(), reason: NOT_OURS })
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
        Box::pin(self.those_allowed(files, async |files| self.inner.restore(files).await))
    }

    fn show(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(self.those_allowed(files, async |files| self.inner.show(files).await))
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
