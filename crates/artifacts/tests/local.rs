//! Local artifact store: contract suite, and faults of the folder.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use admit_artifacts::local::{LocalArtifacts, Options};
use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put};
use admit_testkit::artifacts_suite::{self, ArtifactsHome, put, text};
use bytes::Bytes;
use tempfile::TempDir;

struct Folder {
    _keep: TempDir,
    root: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let keep = tempfile::tempdir().expect("a temporary folder");
        Self { root: keep.path().join("artifacts"), _keep: keep }
    }

    fn store(&self) -> LocalArtifacts {
        LocalArtifacts::open(Options::new(&self.root)).expect("the store opens")
    }

    /// All files in the staging area, except for locks.
    fn leftovers(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.root.join(".aside")).expect("there is one");
        let folders = folders.map(|entry| entry.expect("readable").path()).filter(|p| p.is_dir());
        folders
            .flat_map(|folder| fs::read_dir(folder).expect("readable"))
            .map(|entry| entry.expect("readable").path())
            .filter(|path| !path.ends_with("lock"))
            .collect()
    }
}

impl ArtifactsHome for Folder {
    fn open(&self) -> Arc<dyn Artifacts> {
        Arc::new(self.store())
    }

    fn lines(&self, path: &str) -> Vec<String> {
        let text = fs::read_to_string(self.root.join(path)).expect("a file of lines");
        assert!(text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn the_local_store_passes_the_contract_suite() {
    artifacts_suite::all(|| Box::new(Folder::new())).await;
}

#[tokio::test]
async fn no_staged_files_are_left() {
    let home = Folder::new();
    let store = home.store();
    put(&store, "run/a", "a").await.expect("put");
    put(&store, "run/a", "b").await.expect("put");
    put(&store, "run/a/b", "a file is in the way").await.expect_err("not a folder");
    store.probe("run/p", "p".into()).await.expect("probed");
    store.restore(vec![File::new("run/a", "c")]).await.remove(0).expect("restored");
    assert_eq!(home.leftovers(), Vec::<PathBuf>::new());
    drop(store);
    let aside: Vec<_> = fs::read_dir(home.root.join(".aside")).expect("there is one").collect();
    assert_eq!(aside.len(), 1, "the folder goes with its process: {aside:?}");
}

#[tokio::test]
async fn staging_folders_of_dead_processes_only_are_removed() {
    let home = Folder::new();
    let living = home.store();
    let dead = home.root.join(".aside").join("4711-0");
    fs::create_dir_all(&dead).expect("made");
    fs::write(dead.join("lock"), "").expect("written");
    fs::write(dead.join("7"), "half a fi").expect("written");
    let other = home.store();
    assert!(!dead.exists());
    assert_eq!(put(&living, "run/a", "a").await.expect("put"), Put::Created);
    assert_eq!(put(&other, "run/a", "b").await.expect("put"), Put::Existed);
    assert_eq!(text(&other, "run/a").await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_read_only_store_creates_and_changes_nothing() {
    let home = Folder::new();
    let reader = LocalArtifacts::open_read_only(Options::new(&home.root));
    assert_eq!(text(&reader, "run/a").await, None);
    assert_eq!(reader.list("", None, 10).await.expect("readable"), [""; 0]);
    let refused = put(&reader, "run/a", "a").await;
    assert!(matches!(refused, Err(ArtifactsError::ReadOnly)), "{refused:?}");
    assert!(reader.sync().await.is_err());
    assert!(!home.root.exists());
    put(&home.store(), "run/a", "a").await.expect("put");
    assert_eq!(text(&reader, "run/a").await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_file_that_is_too_large_is_neither_put_nor_read() {
    let home = Folder::new();
    let options = Options { file_bytes_max: 10, ..Options::new(&home.root) };
    let store = LocalArtifacts::open(options).expect("opens");
    let put_it = put(&store, "run/a", "more than ten bytes").await;
    assert!(matches!(put_it, Err(ArtifactsError::TooLarge { bytes: 19, .. })), "{put_it:?}");
    put(&store, "run/b", "ten bytes.").await.expect("put");
    fs::write(home.root.join("run/a"), "more than ten bytes").expect("written");
    assert!(matches!(store.get("run/a").await, Err(ArtifactsError::TooLarge { .. })));
}

fn line(name: &str) -> Line {
    let marker = File::new(format!("run/markers/{name}"), Bytes::new());
    Line { text: name.to_owned().into(), marker }
}

async fn append(
    store: &LocalArtifacts,
    name: &str,
    markers: Markers,
) -> Result<Put, ArtifactsError> {
    store.append_lines("run/log", vec![line(name)], markers).await.remove(0)
}

#[tokio::test]
async fn a_partial_line_is_removed_before_the_next_append() {
    let home = Folder::new();
    let store = home.store();
    append(&store, "one", Markers::Trusted).await.expect("appended");
    let long = "x".repeat(10_000);
    for (torn, n) in ["t", "two without its end", &long].iter().zip(0..) {
        let mut text = fs::read_to_string(home.root.join("run/log")).expect("a log");
        let whole = text.clone();
        text.push_str(torn);
        fs::write(home.root.join("run/log"), text).expect("written");
        append(&store, &format!("next-{n}"), Markers::Trusted).await.expect("appended");
        let text = fs::read_to_string(home.root.join("run/log")).expect("a log");
        assert_eq!(text, format!("{whole}next-{n}\n"));
    }
    fs::write(home.root.join("run/log"), "only half a line").expect("written");
    append(&store, "first", Markers::Trusted).await.expect("appended");
    assert_eq!(home.lines("run/log"), ["first"]);
}

#[tokio::test]
async fn a_line_whose_marker_cannot_be_created_is_removed() {
    let home = Folder::new();
    let store = home.store();
    append(&store, "one", Markers::Trusted).await.expect("appended");
    fs::create_dir_all(home.root.join("run/markers/two")).expect("made");
    append(&store, "two", Markers::Trusted).await.expect_err("a folder is in the way");
    append(&store, "two", Markers::Verified).await.expect_err("a folder is in the way");
    assert_eq!(home.lines("run/log"), ["one"]);
    fs::remove_dir(home.root.join("run/markers/two")).expect("removed");
    assert_eq!(append(&store, "two", Markers::Trusted).await.expect("appended"), Put::Created);
    assert_eq!(home.lines("run/log"), ["one", "two"]);
}
