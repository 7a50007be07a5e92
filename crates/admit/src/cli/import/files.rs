//! Scan of a folder for files about rounds, with the source of each.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Maximum depth of a scan.
const DEPTH_MAX: usize = 16;

/// Size and modification time of a file; a change makes it a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) modified: i64,
}

/// A file about a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoundFile {
    pub(super) path: PathBuf,
    /// Canonical path, with links resolved.
    pub(super) real: PathBuf,
    /// File name; sources encode facts in it.
    pub(super) name: String,
    pub(super) source: &'static str,
    pub(super) stamp: FileStamp,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(super) struct FolderScan {
    /// Sorted by path.
    pub(super) files: Vec<RoundFile>,
    /// Files of no known source.
    pub(super) skipped: Vec<PathBuf>,
    /// Links to targets outside the folder, which are not followed.
    pub(super) outside: Vec<PathBuf>,
}

/// Source of a file, by its name. Malformed names match too: the gate stores them with the reason.
pub(super) fn source_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let text = name.strip_suffix(".txt");
    let json = name.strip_suffix(".json");
    match (text, json) {
        (Some(stem), _) if stem.ends_with("-endstats") => None,
        (Some(stem), _) if stem.ends_with("_engagements") => Some("proximity_file"),
        (Some(_), _) => Some("filename_trigger"),
        (_, Some(stem)) if stem.starts_with("gametime") => Some("gametime_fallback"),
        (_, Some(stem)) if stem.starts_with("stats_ready") => Some("stats_ready"),
        _ => None,
    }
}

/// Scans a folder recursively, or a single file.
pub(super) fn scan(path: &Path) -> io::Result<FolderScan> {
    let mut result = FolderScan::default();
    // A link given as the path itself is followed.
    let real = fs::canonicalize(path)?;
    let meta = fs::metadata(&real)?;
    if meta.is_dir() {
        scan_folder(path, &real, 0, &mut result)?;
    } else {
        add_file(path, real, &meta, &mut result);
    }
    result.outside.sort();
    result.files.sort_by(|a, b| a.path.cmp(&b.path));
    result.skipped.sort();
    Ok(result)
}

/// Returns the file with its current stamp; `None` if it is gone or a link has replaced it.
pub(super) fn refresh(file: RoundFile) -> Option<RoundFile> {
    let meta = fs::symlink_metadata(&file.real).ok().filter(Metadata::is_file)?;
    let stamp = FileStamp { bytes: meta.len(), modified: modified(&meta) };
    Some(RoundFile { stamp, ..file })
}

/// Scans `folder`; `root` is the canonical path of the scan.
fn scan_folder(
    folder: &Path,
    root: &Path,
    depth: usize,
    result: &mut FolderScan,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_hidden(&entry) {
            continue;
        }
        let path = entry.path();
        // Links to folders are not followed: they may form a cycle.
        if entry.file_type()?.is_dir() {
            if depth < DEPTH_MAX {
                scan_folder(&path, root, depth + 1, result)?;
            }
            continue;
        }
        // The file may have been removed since, and a link may be dangling or cyclic.
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) if entry.file_type()?.is_symlink() => {
                result.skipped.push(path);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !real.starts_with(root) {
            result.outside.push(path);
            continue;
        }
        match fs::metadata(&real) {
            Ok(meta) if meta.is_file() => add_file(&path, real, &meta, result),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the name starts with a dot. Copy programs use such names for incomplete files.
fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

fn add_file(path: &Path, real: PathBuf, meta: &Metadata, result: &mut FolderScan) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match source_of(&name) {
        None => result.skipped.push(path.to_owned()),
        Some(source) => {
            let stamp = FileStamp { bytes: meta.len(), modified: modified(meta) };
            result.files.push(RoundFile { path: path.to_owned(), real, name, source, stamp });
        }
    }
}

fn modified(meta: &Metadata) -> i64 {
    let since = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_source_that_writes_such_names() {
        for (name, source) in [
            ("2026-02-11-220205-supply-round-2.txt", Some("filename_trigger")),
            ("2026-13-41-supply.txt", Some("filename_trigger")),
            ("2026-02-11-220205-supply-round-2-endstats.txt", None),
            ("2026-02-11-220202-supply-round-1_engagements.txt", Some("proximity_file")),
            ("gametime-supply-R2-1770843722.json", Some("gametime_fallback")),
            ("stats_ready-1.json", Some("stats_ready")),
            ("notes.md", None),
            ("package.json", None),
        ] {
            assert_eq!(source_of(name), source, "{name}");
        }
    }

    #[test]
    fn a_scan_is_recursive_and_skips_hidden_files() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("2026");
        fs::create_dir(&below).unwrap();
        for name in ["b-round-1.txt", ".a-round-1.txt", "readme"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::write(below.join("a-round-1.txt"), "xy").unwrap();
        let result = scan(folder.path()).unwrap();
        let names: Vec<_> = result.files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["a-round-1.txt", "b-round-1.txt"]);
        assert_eq!(result.files[0].stamp.bytes, 2);
        assert_eq!(result.skipped, [folder.path().join("readme")]);
    }
}
