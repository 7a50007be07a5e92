//! The files of the repository, read once.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A text file with its path from the root of the repository, always with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    /// Creates a file that exists only in the test of a rule.
    pub(super) fn example(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Whether the file name ends with `.extension`.
    pub(super) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Folder of the file.
    pub(super) fn folder(&self) -> &Path {
        Path::new(&self.path).parent().unwrap_or_else(|| Path::new(""))
    }
}

/// Folders without our sources. In a git worktree `.git` is a file.
const NOT_OURS: &[&str] = &[".git", "target", "admit-data", "node_modules", "generated"];

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let mut files = Vec::new();
    collect(&root(), &root(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
});

/// All text files of the repository, ordered by path.
pub(super) fn files() -> &'static [File] {
    &FILES
}

/// The files whose name ends with `.extension`.
pub(super) fn files_with(extension: &'static str) -> impl Iterator<Item = &'static File> {
    files().iter().filter(move |file| file.is(extension))
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the root of the repository")
        .to_owned()
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) {
    for entry in folder.read_dir().expect("the repository can be read") {
        let entry = entry.expect("the repository can be read");
        let path = entry.path();
        let name = entry.file_name();
        let kind = entry.file_type().expect("the repository can be read");
        if NOT_OURS.iter().any(|not_ours| name == *not_ours) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files);
        } else if kind.is_file() {
            // Files that are not UTF-8 are test data.
            if let Ok(text) = std::fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("the walk started at the root");
                files.push(File { path: path.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
}

#[test]
fn the_walk_finds_its_own_source() {
    assert!(files().iter().any(|file| file.path == "xtask/src/tidy/repo.rs"));
    assert!(files_with("toml").any(|file| file.path == "Cargo.toml"));
}
