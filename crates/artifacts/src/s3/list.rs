//! Paths in byte order, a page at a time, folder by folder.
//!
//! AWS lists keys in byte order. Others walk folders: there `b/1` comes where `b` would, before
//! `b-x` and `b.json`, though a slash is greater than `-` and `.`. So every folder is listed by
//! itself, and a folder below it waits until the files that come before it have been said. Within one
//! folder both agree, because no name has a slash.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path as Key;

use super::Store;
use crate::path;
use crate::port::{ArtifactsError, BoxFuture};

/// Most paths that one `list` returns, whatever it is asked for.
pub const LIST_ROWS_MAX: usize = 100_000;

/// Deepest folders that are looked into; the longest path has no more.
const DEPTH_MAX: usize = path::PATH_BYTES_MAX / 2 + 1;

/// What is looked for, and what was found.
struct Listing<'a> {
    prefix: &'a str,
    after: Option<&'a str>,
    rows_max: usize,
    found: Vec<String>,
}

impl Listing<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= self.rows_max
    }

    fn holds(&self, path: &str) -> bool {
        path.starts_with(self.prefix) && self.after.is_none_or(|after| path > after)
    }

    /// Whether a path below `folder`, which ends with a slash, may belong into the list.
    fn may_hold(&self, folder: &str) -> bool {
        let in_prefix = folder.starts_with(self.prefix) || self.prefix.starts_with(folder);
        in_prefix && self.after.is_none_or(|after| folder > after || after.starts_with(folder))
    }

    /// From where on a folder must be listed so that nothing is missed, also by a service that says
    /// the folder `b` before the file `b-x`.
    fn start(&self, folder: &str) -> Option<&str> {
        let after = self.after.filter(|after| after.starts_with(folder));
        let start = after.unwrap_or_default().max(self.prefix);
        let name = start.get(folder.len()..).filter(|_| start.starts_with(folder))?;
        let end = name.bytes().position(|byte| byte <= b'/').unwrap_or(name.len());
        // The last character too: what is started after is itself left out.
        let end = end.checked_sub(1)?;
        Some(&start[..folder.len() + end]).filter(|_| end > 0)
    }
}

impl Store {
    /// Paths that begin with `prefix` and come after `after`, in byte order, at most `rows_max`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        rows_max: usize,
    ) -> Result<Vec<String>, ArtifactsError> {
        let not_a_path = |reason| ArtifactsError::NotAPath { path: prefix.to_owned(), reason };
        path::check_prefix(prefix).map_err(not_a_path)?;
        let rows_max = rows_max.min(LIST_ROWS_MAX);
        let mut listing = Listing { prefix, after, rows_max, found: Vec::new() };
        let folder = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
        self.walk(&mut listing, folder.to_owned(), 0).await?;
        Ok(listing.found)
    }

    /// Lists one folder, which is empty or ends with a slash, and those below it.
    fn walk<'s>(
        &'s self,
        listing: &'s mut Listing<'_>,
        folder: String,
        depth: usize,
    ) -> BoxFuture<'s, Result<(), ArtifactsError>> {
        Box::pin(async move {
            let mut below: BinaryHeap<Reverse<String>> = BinaryHeap::new();
            let mut token = None;
            let mut is_over = depth > DEPTH_MAX;
            while !is_over && !listing.is_full() {
                let (files, folders, next) = self.page(listing, &folder, token).await?;
                is_over = next.is_none();
                token = next;
                below.extend(folders.into_iter().map(Reverse));
                for file in files {
                    self.walk_before(listing, &mut below, Some(&file), depth).await?;
                    if listing.is_full() {
                        break;
                    }
                    listing.found.push(file);
                }
            }
            self.walk_before(listing, &mut below, None, depth).await
        })
    }

    /// Lists the waiting folders that come before a file, or all of them.
    async fn walk_before(
        &self,
        listing: &mut Listing<'_>,
        below: &mut BinaryHeap<Reverse<String>>,
        file: Option<&str>,
        depth: usize,
    ) -> Result<(), ArtifactsError> {
        let is_due = |folder: &Reverse<String>| file.is_none_or(|file| &*folder.0 < file);
        while !listing.is_full() && below.peek().is_some_and(is_due) {
            if let Some(Reverse(folder)) = below.pop() {
                self.walk(listing, folder, depth + 1).await?;
            }
        }
        Ok(())
    }

    /// One page of one folder: files and folders that may belong into the list, and what to go on
    /// with.
    async fn page(
        &self,
        listing: &Listing<'_>,
        folder: &str,
        token: Option<String>,
    ) -> Result<(Vec<String>, Vec<String>, Option<String>), ArtifactsError> {
        let prefix = match (self.place.key("").is_empty(), folder) {
            (true, folder) => folder.to_owned(),
            (false, "") => format!("{}/", self.place.key("")),
            (false, folder) => self.place.key(folder),
        };
        let options = PaginatedListOptions {
            offset: listing.start(folder).map(|start| self.place.key(start)),
            delimiter: Some("/".into()),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let (prefix, options) = (&prefix, &options);
        let page = self
            .trying("list", listing.prefix, || async move {
                let prefix = (!prefix.is_empty()).then_some(prefix.as_str());
                self.objects.list_paginated(prefix, options.clone()).await
            })
            .await?;
        let own = |key: &Key| self.place.path(key.as_ref()).map(str::to_owned);
        let files = page.result.objects.iter().filter_map(|object| own(&object.location));
        // What begins with a dot is the store's own.
        let files = files.filter(|file| listing.holds(file) && path::check(file).is_ok());
        let folders = page.result.common_prefixes.iter().filter_map(own);
        let folders = folders.filter(|folder| path::check(folder).is_ok()).map(|one| one + "/");
        let folders = folders.filter(|folder| listing.may_hold(folder));
        Ok((files.collect(), folders.collect(), page.page_token))
    }

    /// The key of a path that was checked, or of a folder.
    pub(super) fn key(&self, path: &str) -> Result<Key, object_store::Error> {
        Ok(Key::parse(self.place.key(path))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_listed_from_where_nothing_can_be_missed() {
        let start = |prefix: &str, after: Option<&str>, folder: &str| {
            let (after, found) = (after.map(str::to_owned), Vec::new());
            let listing = Listing { prefix, after: after.as_deref(), rows_max: 1, found };
            listing.start(folder).map(str::to_owned)
        };
        assert_eq!(start("run/", None, "run/"), None, "from its beginning");
        assert_eq!(start("run/abc", None, "run/"), Some("run/ab".to_owned()));
        assert_eq!(start("run/", Some("run/abc.json"), "run/"), Some("run/ab".to_owned()));
        assert_eq!(start("run/", Some("run/abc/d"), "run/"), Some("run/ab".to_owned()));
        assert_eq!(start("run/", Some("run/abc/d"), "run/abc/"), None);
        assert_eq!(start("run/", Some("run/-x"), "run/"), None, "perhaps there is nothing before");
        assert_eq!(start("run/", Some("other"), "run/"), None);
    }
}
