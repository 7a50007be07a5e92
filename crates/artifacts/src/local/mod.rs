//! Artifacts on a disk: written aside, then linked into place where there is nothing.
//!
//! A link fails where a name exists, in one step, whoever races; so the first writer wins, also
//! among several processes, and a reader never sees half a file. Nothing is synced per file: one
//! [`sync`](crate::Artifacts::sync) covers all that was put before it.

mod append;
mod aside;
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
use aside::Aside;

/// Most paths that one `list` returns, whatever it is asked for.
pub const LIST_ROWS_MAX: usize = 100_000;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; made if it is not there.
    pub root: PathBuf,
    /// Largest file that is put or read, in bytes.
    pub file_bytes_max: u64,
}

impl Options {
    /// The defaults, in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), file_bytes_max: 16 << 20 }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or something in it.
    #[error("the artifacts folder {} cannot be used", path.display())]
    Folder {
        /// What it was about.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file system has no hard links.
    #[error(
        "the artifacts folder {} is on a file system without hard links; use another folder",
        root.display()
    )]
    NoLinks {
        /// The folder.
        root: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// Artifacts in a folder.
#[derive(Clone, Debug)]
pub struct LocalArtifacts {
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store {
    options: Options,
    /// Where files are written before they have a name; `None` when only read.
    aside: Option<Aside>,
    /// The folder itself, which a sync is asked for.
    folder: Option<fs::File>,
    is_sync_broken: AtomicBool,
    /// One appender at a time in this process; a file lock keeps the others away.
    appending: Mutex<()>,
}

impl LocalArtifacts {
    /// Opens the store in a folder, and clears away what dead processes left half written. Several
    /// processes may have it open.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let root = &options.root;
        let fail = |source| OpenError::Folder { path: root.clone(), source };
        fs::create_dir_all(root).map_err(fail)?;
        let aside = Aside::make(root).map_err(fail)?;
        let no_links = |source| OpenError::NoLinks { root: root.clone(), source };
        aside.try_link().map_err(no_links)?;
        let folder = fs::File::open(root).map_err(fail)?;
        Ok(Self::new(options, Some(aside), Some(folder)))
    }

    /// Opens the store for reading only, beside whoever writes. It creates and changes nothing.
    pub fn reading(options: Options) -> Self {
        Self::new(options, None, None)
    }

    fn new(options: Options, aside: Option<Aside>, folder: Option<fs::File>) -> Self {
        let (is_sync_broken, appending) = (AtomicBool::new(false), Mutex::new(()));
        Self { store: Arc::new(Store { options, aside, folder, is_sync_broken, appending }) }
    }

    /// Runs one call on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, ArtifactsError> {
        let store = self.store.clone();
        spawn_blocking(move || work(&store)).await.map_err(|error| ArtifactsError::Store {
            doing: "finish work on",
            path: "the folder".to_owned(),
            source: io::Error::other(error),
        })
    }

    /// As [`Self::on_disk`], for calls with one answer for each of `asked`.
    async fn for_each<T: Send + 'static>(
        &self,
        asked: usize,
        work: impl FnOnce(&Store) -> Vec<Result<T, ArtifactsError>> + Send + 'static,
    ) -> Vec<Result<T, ArtifactsError>> {
        self.on_disk(work).await.unwrap_or_else(|error| {
            let text = error.to_string();
            let again = || ArtifactsError::Store {
                doing: "finish work on",
                path: "the folder".to_owned(),
                source: io::Error::other(text.clone()),
            };
            (0..asked).map(|_| Err(again())).collect()
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
            let not_a_path = |reason| ArtifactsError::NotAPath { path: prefix.clone(), reason };
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
        Box::pin(async move { self.on_disk(Store::sync).await? })
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        let file = File::new(path, bytes);
        Box::pin(async move { self.on_disk(move |store| store.replace(&file)).await? })
    }
}

impl Store {
    fn place(&self, path: &str) -> Result<PathBuf, ArtifactsError> {
        path::check(path)
            .map_err(|reason| ArtifactsError::NotAPath { path: path.to_owned(), reason })?;
        Ok(self.options.root.join(path))
    }

    fn aside(&self) -> Result<&Aside, ArtifactsError> {
        self.aside.as_ref().ok_or(ArtifactsError::ReadOnly)
    }

    /// The place of a file that may be written.
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
        let aside = self.aside()?;
        let fail = |source| store_error("write", &file.path, source);
        // Mostly for copies; whoever races past it meets the link.
        if place.is_file() {
            return Ok(Put::Existed);
        }
        let written = aside.write(&file.bytes).map_err(fail)?;
        match in_folder(&place, || fs::hard_link(written.path(), &place)) {
            Ok(()) => Ok(Put::Created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_file() => {
                Ok(Put::Existed)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// Puts a file there in one step, over whatever file is there.
    fn replace(&self, file: &File) -> Result<(), ArtifactsError> {
        let place = self.place_for(file)?;
        let fail = |source| store_error("write", &file.path, source);
        let written = self.aside()?.write(&file.bytes).map_err(fail)?;
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

    /// One sync of the whole file system is far cheaper than one for each of many small files.
    fn sync(&self) -> Result<(), ArtifactsError> {
        let folder = self.folder.as_ref().ok_or(ArtifactsError::ReadOnly)?;
        if self.is_sync_broken.load(Ordering::SeqCst) {
            return Err(ArtifactsError::NotSynced { source: None });
        }
        sync_file_system(folder).map_err(|error| {
            self.is_sync_broken.store(true, Ordering::SeqCst);
            tracing::error!(%error, "the artifacts could not be synced");
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

/// Does something in the folder of `place`, which is made if that is what is missing.
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

/// Nothing there, or a file where a folder would have to be.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn store_error(doing: &'static str, path: &str, source: io::Error) -> ArtifactsError {
    ArtifactsError::Store { doing, path: path.to_owned(), source }
}
