//! Artifacts on a local disk: written to a staging area, then hard-linked to their name.
//!
//! Linking is atomic and fails if the name exists; so the first writer wins, also among several
//! processes, and readers never see a partial file. Files are not synced one by one: one
//! [`sync`](crate::Artifacts::sync) covers all earlier puts.

mod append;
mod staging;
mod walk;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::path;
use crate::port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};
use staging::StagingArea;

/// Maximum number of paths returned by one `list`.
pub const LIST_ROWS_MAX: usize = 100_000;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Root folder; created if missing.
    pub root: PathBuf,
    /// Maximum file size in bytes.
    pub file_bytes_max: u64,
}

impl Options {
    /// Defaults, in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), file_bytes_max: 16 << 20 }
    }
}

/// Error while opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file in it is not usable.
    #[error("the artifacts folder {} is not usable", path.display())]
    Folder {
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The file system has no hard links.
    #[error(
        "the artifacts folder {} is on a file system without hard links; use another folder",
        root.display()
    )]
    NoLinks {
        /// Folder.
        root: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

/// Artifact store in a folder.
#[derive(Clone, Debug)]
pub struct LocalArtifacts {
    store: Arc<LocalStore>,
}

#[derive(Debug)]
struct LocalStore {
    options: Options,
    /// Staging area; `None` if read-only.
    staging: Option<StagingArea>,
    /// Handle of the folder, for syncs.
    folder: Option<fs::File>,
    is_sync_broken: AtomicBool,
    /// Serialises appends in this process; a file lock excludes other processes.
    appending: Mutex<()>,
}

impl LocalArtifacts {
    /// Opens the store in a folder and removes staging files of dead processes. Several processes
    /// may open it.
    ///
    /// # Errors
    /// If the folder is not usable.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let root = &options.root;
        let fail = |source| OpenError::Folder { path: root.clone(), source };
        fs::create_dir_all(root).map_err(fail)?;
        let staging = StagingArea::create(root).map_err(fail)?;
        let no_links = |source| OpenError::NoLinks { root: root.clone(), source };
        staging.try_link().map_err(no_links)?;
        let folder = fs::File::open(root).map_err(fail)?;
        Ok(Self::new(options, Some(staging), Some(folder)))
    }

    /// Opens the store read-only, concurrently with writers. It creates and changes nothing.
    pub fn open_read_only(options: Options) -> Self {
        Self::new(options, None, None)
    }

    fn new(options: Options, staging: Option<StagingArea>, folder: Option<fs::File>) -> Self {
        let (is_sync_broken, appending) = (AtomicBool::new(false), Mutex::new(()));
        Self { store: Arc::new(LocalStore { options, staging, folder, is_sync_broken, appending }) }
    }

    /// Runs one call on a blocking thread.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalStore) -> T + Send + 'static,
    ) -> Result<T, ArtifactsError> {
        let store = self.store.clone();
        spawn_blocking(move || work(&store)).await.map_err(|error| ArtifactsError::Store {
            doing: "finish work on",
            path: "the folder".to_owned(),
            source: io::Error::other(error),
        })
    }

    /// Like [`Self::on_disk`], for calls with one result per item.
    async fn for_each<T: Send + 'static>(
        &self,
        count: usize,
        work: impl FnOnce(&LocalStore) -> Vec<Result<T, ArtifactsError>> + Send + 'static,
    ) -> Vec<Result<T, ArtifactsError>> {
        self.on_disk(work).await.unwrap_or_else(|error| {
            let text = error.to_string();
            let again = || ArtifactsError::Store {
                doing: "finish work on",
                path: "the folder".to_owned(),
                source: io::Error::other(text.clone()),
            };
            (0..count).map(|_| Err(again())).collect()
        })
    }
}

impl Artifacts for LocalArtifacts {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        Box::pin(self.for_each(files.len(), move |store| {
            files.iter().map(|file| store.put_if_absent(file)).collect()
        }))
    }

    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        let path = path.to_owned();
        Box::pin(async move { self.on_disk(move |store| store.get(&path)).await? })
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        let prefix = prefix.to_owned();
        let rows_max = rows_max.min(LIST_ROWS_MAX);
        Box::pin(async move {
            let not_a_path = |reason| ArtifactsError::InvalidPath { path: prefix.clone(), reason };
            path::check_prefix(&prefix).map_err(not_a_path)?;
            self.on_disk(move |store| {
                let fail = |source| store_error("list", &prefix, source);
                walk::list(&store.options.root, &prefix, after.as_deref(), rows_max).map_err(fail)
            })
            .await?
        })
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        let path = path.to_owned();
        Box::pin(self.for_each(lines.len(), move |store| store.append(&path, &lines, markers)))
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(self.for_each(files.len(), move |store| {
            files.iter().map(|file| store.replace(file)).collect()
        }))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        Box::pin(async move { self.on_disk(LocalStore::sync).await? })
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let file = File::new(path, bytes);
        Box::pin(async move { self.on_disk(move |store| store.replace(&file)).await? })
    }
}

impl LocalStore {
    fn place(&self, path: &str) -> Result<PathBuf, ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::InvalidPath { path: path.to_owned(), reason })?;
        Ok(self.options.root.join(path))
    }

    fn staging(&self) -> Result<&StagingArea, ArtifactsError> {
        self.staging.as_ref().ok_or(ArtifactsError::ReadOnly)
    }

    /// Checks a file to write and returns its location.
    fn place_for(&self, file: &File) -> Result<PathBuf, ArtifactsError> {
        let place = self.place(&file.path)?;
        let (bytes, bytes_max) = (file.bytes.len() as u64, self.options.file_bytes_max);
        if bytes > bytes_max {
            return Err(ArtifactsError::TooLarge { path: file.path.clone(), bytes, bytes_max });
        }
        Ok(place)
    }

    fn put_if_absent(&self, file: &File) -> Result<Put, ArtifactsError> {
        let place = self.place_for(file)?;
        let staging = self.staging()?;
        let fail = |source| store_error("write", &file.path, source);
        // Fast path for copies; in a race the hard link fails.
        if place.is_file() {
            return Ok(Put::Existed);
        }
        let written = staging.write(&file.bytes).map_err(fail)?;
        match in_folder(&place, || fs::hard_link(written.path(), &place)) {
            Ok(()) => Ok(Put::Created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_file() => {
                Ok(Put::Existed)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// Atomically writes or replaces a file.
    fn replace(&self, file: &File) -> Result<(), ArtifactsError> {
        let place = self.place_for(file)?;
        let fail = |source| store_error("write", &file.path, source);
        let written = self.staging()?.write(&file.bytes).map_err(fail)?;
        in_folder(&place, || fs::rename(written.path(), &place)).map_err(fail)
    }

    fn get(&self, path: &str) -> Result<Option<Bytes>, ArtifactsError> {
        let place = self.place(path)?;
        let fail = |source| store_error("read", path, source);
        let mut file = match fs::File::open(place) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let facts = file.metadata().map_err(fail)?;
        if !facts.is_file() {
            return Ok(None);
        }
        let (size, bytes_max) = (facts.len(), self.options.file_bytes_max);
        if size > bytes_max {
            return Err(ArtifactsError::TooLarge { path: path.to_owned(), bytes: size, bytes_max });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.by_ref().take(bytes_max).read_to_end(&mut bytes).map_err(fail)?;
        Ok(Some(bytes.into()))
    }

    /// One sync of the whole file system is far cheaper than one per small file.
    fn sync(&self) -> Result<(), ArtifactsError> {
        let folder = self.folder.as_ref().ok_or(ArtifactsError::ReadOnly)?;
        if self.is_sync_broken.load(Ordering::SeqCst) {
            return Err(ArtifactsError::NotSynced { source: None });
        }
        sync_file_system(folder).map_err(|error| {
            self.is_sync_broken.store(true, Ordering::SeqCst);
            tracing::error!(%error, "failed to sync the artifact store");
            ArtifactsError::NotSynced { source: Some(error) }
        })
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &fs::File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(folder: &fs::File) -> io::Result<()> {
    rustix::fs::sync();
    folder.sync_all()
}

/// Runs `work` in the folder of `place`, which is created if missing.
fn in_folder(place: &Path, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = place.parent() {
                fs::create_dir_all(folder)?;
            }
            work()
        }
        done => done,
    }
}

/// The file does not exist, or a parent is not a folder.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn store_error(doing: &'static str, path: &str, source: io::Error) -> ArtifactsError {
    ArtifactsError::Store { doing, path: path.to_owned(), source }
}
