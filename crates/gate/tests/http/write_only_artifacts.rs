//! Artifact store that accepts writes and returns nothing on reads.

use admit_artifacts::local::LocalArtifacts;
use admit_artifacts::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};
use bytes::Bytes;

/// Wraps a store; every `get` returns `None`.
pub(crate) struct WriteOnlyArtifacts(pub(crate) LocalArtifacts);

impl Artifacts for WriteOnlyArtifacts {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        self.0.put_if_absent(files)
    }

    fn get(&self, _path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        self.0.list(prefix, after, rows_max)
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        self.0.append_lines(path, lines, markers)
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        self.0.restore(files)
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.0.sync()
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.0.probe(path, bytes)
    }
}
