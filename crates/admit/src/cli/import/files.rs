//! The files of a folder: which of them tell of rounds, who wrote them, and whether they are whole.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Folders deeper than this are not looked into.
const DEPTH_MAX: usize = 16;

/// What a file looked like; another look that differs is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) modified: i64,
}

/// A file that tells of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Artifact {
    pub(super) path: PathBuf,
    /// Where it really is, links resolved.
    pub(super) real: PathBuf,
    /// Its own name, which the sources put their facts in.
    pub(super) name: String,
    pub(super) source: &'static str,
    pub(super) stamp: Stamp,
}

/// What is in a folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order of their paths.
    pub(super) artifacts: Vec<Artifact>,
    /// Files that are none of ours.
    pub(super) skipped: Vec<PathBuf>,
    /// Links that lead out of the folder, which are not followed.
    pub(super) outside: Vec<PathBuf>,
}

/// The source that writes files called so. Whatever may be meant as an artifact is one: a name that
/// is wrong in itself is kept by the gate with its reason, not left out here.
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

/// Looks at a folder and those below it, or at a single file.
pub(super) fn find(path: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    // A link that is named itself is meant.
    let real = fs::canonicalize(path)?;
    let meta = fs::metadata(&real)?;
    if meta.is_dir() {
        walk(path, &real, 0, &mut found)?;
    } else {
        take(path, real, &meta, &mut found);
    }
    found.outside.sort();
    found.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    found.skipped.sort();
    Ok(found)
}

/// The same file as it looks now, if it is still there and no link has taken its place.
pub(super) fn again(artifact: Artifact) -> Option<Artifact> {
    let meta = fs::symlink_metadata(&artifact.real).ok().filter(Metadata::is_file)?;
    let stamp = Stamp { bytes: meta.len(), modified: modified(&meta) };
    Some(Artifact { stamp, ..artifact })
}

/// Looks through `folder`; `root` is what was named, links resolved.
fn walk(folder: &Path, root: &Path, depth: usize, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_hidden(&entry) {
            continue;
        }
        let path = entry.path();
        // Links to folders are not followed: they may lead round in a circle.
        if entry.file_type()?.is_dir() {
            if depth < DEPTH_MAX {
                walk(&path, root, depth + 1, found)?;
            }
            continue;
        }
        // It may be gone since it was listed, and a link may lead nowhere or round in a circle.
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) if entry.file_type()?.is_symlink() => {
                found.skipped.push(path);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !real.starts_with(root) {
            found.outside.push(path);
            continue;
        }
        match fs::metadata(&real) {
            Ok(meta) if meta.is_file() => take(&path, real, &meta, found),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Programs that copy files write them under such a name first.
fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

fn take(path: &Path, real: PathBuf, meta: &Metadata, found: &mut Found) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match source_of(&name) {
        None => found.skipped.push(path.to_owned()),
        Some(source) => {
            let stamp = Stamp { bytes: meta.len(), modified: modified(meta) };
            found.artifacts.push(Artifact { path: path.to_owned(), real, name, source, stamp });
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
    fn a_folder_is_looked_through_and_what_is_hidden_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("2026");
        fs::create_dir(&below).unwrap();
        for name in ["b-round-1.txt", ".a-round-1.txt", "readme"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::write(below.join("a-round-1.txt"), "xy").unwrap();
        let found = find(folder.path()).unwrap();
        let names: Vec<_> = found.artifacts.iter().map(|artifact| &*artifact.name).collect();
        assert_eq!(names, ["a-round-1.txt", "b-round-1.txt"]);
        assert_eq!(found.artifacts[0].stamp.bytes, 2);
        assert_eq!(found.skipped, [folder.path().join("readme")]);
    }
}
