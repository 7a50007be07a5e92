//! Lists paths in byte order, reading no more folders than the page needs.

use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::path::Path;

use super::is_absent;

/// Lists paths with `prefix` after `after`, at most `rows_max`.
pub(super) fn list(
    root: &Path,
    prefix: &str,
    after: Option<&str>,
    rows_max: usize,
) -> io::Result<Vec<String>> {
    let mut listing = LocalListing { root, prefix, after, rows_max, found: Vec::new() };
    let folder = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
    listing.walk(folder)?;
    Ok(listing.found)
}

struct LocalListing<'a> {
    root: &'a Path,
    prefix: &'a str,
    after: Option<&'a str>,
    rows_max: usize,
    found: Vec<String>,
}

impl LocalListing<'_> {
    fn rows_left(&self) -> usize {
        self.rows_max - self.found.len()
    }

    /// Walks `folder`, which is empty or ends with a slash. The recursion depth is limited by the
    /// path length.
    fn walk(&mut self, folder: &str) -> io::Result<()> {
        let (files, folders) = self.read(folder)?;
        // A folder is sorted with its slash, as in the paths below it.
        let mut entries: Vec<(String, bool)> =
            files.into_iter().map(|path| (path, false)).collect();
        entries.extend(folders.into_iter().map(|path| (path, true)));
        entries.sort_unstable();
        for (path, is_folder) in entries {
            if self.rows_left() == 0 {
                break;
            }
            if is_folder {
                self.walk(&path)?;
            } else {
                self.found.push(path);
            }
        }
        Ok(())
    }

    /// Files and folders of a folder that may be listed; no more files than rows left.
    fn read(&self, folder: &str) -> io::Result<(Vec<String>, Vec<String>)> {
        let (mut files, mut folders) = (BinaryHeap::new(), Vec::new());
        let entries = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(Default::default()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let kind = entry.file_type()?;
            let path = format!("{folder}{name}");
            if kind.is_dir() {
                let path = path + "/";
                if self.may_hold(&path) {
                    folders.push(path);
                }
            } else if kind.is_file() && self.holds(&path) {
                files.push(path);
                if files.len() > self.rows_left() {
                    files.pop();
                }
            }
        }
        Ok((files.into_vec(), folders))
    }

    fn holds(&self, path: &str) -> bool {
        path.starts_with(self.prefix) && self.after.is_none_or(|after| path > after)
    }

    /// Whether paths below `folder`, which ends with a slash, may be listed.
    fn may_hold(&self, folder: &str) -> bool {
        let in_prefix = folder.starts_with(self.prefix) || self.prefix.starts_with(folder);
        in_prefix && self.after.is_none_or(|after| folder > after || after.starts_with(folder))
    }
}
