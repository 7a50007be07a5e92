//! Listing of paths in byte order, page by page and folder by folder.
//!
//! AWS lists keys in byte order. Other services walk folders: there `b/1` is listed where `b` would
//! be, before `b-x` and `b.json`, though a slash is greater than `-` and `.`. So every folder is
//! listed separately, and a subfolder is deferred until the files that precede it have been listed.
//! Within one folder both orders agree, because no name contains a slash.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path as Key;

use super::S3Store;
use crate::path;
use crate::port::{ArtifactsError, BoxFuture};

/// Maximum number of paths returned by one `list`.
pub const LIST_ROWS_MAX: usize = 100_000;

/// Maximum folder depth; the longest path is not deeper.
const DEPTH_MAX: usize = path::PATH_BYTES_MAX / 2 + 1;

/// Query and result of a listing.
struct BucketListing<'a> {
    prefix: &'a str,
    after: Option<&'a str>,
    rows_max: usize,
    found: Vec<String>,
}

impl BucketListing<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= self.rows_max
    }

    fn holds(&self, path: &str) -> bool {
        path.starts_with(self.prefix) && self.after.is_none_or(|after| path > after)
    }

    /// Whether paths below `folder`, which ends with a slash, may be listed.
    fn may_hold(&self, folder: &str) -> bool {
        let in_prefix = folder.starts_with(self.prefix) || self.prefix.starts_with(folder);
        in_prefix && self.after.is_none_or(|after| folder > after || after.starts_with(folder))
    }

    /// Start offset for listing a folder so that nothing is missed, even if the service lists the
    /// folder `b` before the file `b-x`.
    fn start(&self, folder: &str) -> Option<&str> {
        let after = self.after.filter(|after| after.starts_with(folder));
        let start = after.unwrap_or_default().max(self.prefix);
        let name = start.get(folder.len()..).filter(|_| start.starts_with(folder))?;
        let end = name.bytes().position(|byte| byte <= b'/').unwrap_or(name.len());
        // Without the last character: the start offset itself is excluded.
        let end = end.checked_sub(1)?;
        Some(&start[..folder.len() + end]).filter(|_| end > 0)
    }
}

impl S3Store {
    /// Lists paths with `prefix` after `after`, in byte order, at most `rows_max`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        rows_max: usize,
    ) -> Result<Vec<String>, ArtifactsError> {
        let not_a_path = |reason| ArtifactsError::InvalidPath { path: prefix.to_owned(), reason };
        path::check_prefix(prefix).map_err(not_a_path)?;
        let rows_max = rows_max.min(LIST_ROWS_MAX);
        let mut listing = BucketListing { prefix, after, rows_max, found: Vec::new() };
        let folder = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
        self.walk(&mut listing, folder.to_owned(), 0).await?;
        Ok(listing.found)
    }

    /// Lists one folder, which is empty or ends with a slash, and its subfolders.
    fn walk<'s>(
        &'s self,
        listing: &'s mut BucketListing<'_>,
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

    /// Lists the deferred folders that precede a file, or all of them.
    async fn walk_before(
        &self,
        listing: &mut BucketListing<'_>,
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

    /// Loads one page of one folder: matching files and folders, and the continuation token.
    async fn page(
        &self,
        listing: &BucketListing<'_>,
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
            .retrying("list", listing.prefix, || async move {
                let prefix = (!prefix.is_empty()).then_some(prefix.as_str());
                self.objects.list_paginated(prefix, options.clone()).await
            })
            .await?;
        let own = |key: &Key| self.place.path(key.as_ref()).map(str::to_owned);
        let files = page.result.objects.iter().filter_map(|object| own(&object.location));
        // Names with a leading dot are internal to the store.
        let files = files.filter(|file| listing.holds(file) && path::check(file).is_ok());
        let folders = page.result.common_prefixes.iter().filter_map(own);
        let folders = folders.filter(|folder| path::check(folder).is_ok()).map(|one| one + "/");
        let folders = folders.filter(|folder| listing.may_hold(folder));
        Ok((files.collect(), folders.collect(), page.page_token))
    }

    /// Object key of a checked path or folder.
    pub(super) fn key(&self, path: &str) -> Result<Key, object_store::Error> {
        Ok(Key::parse(self.place.key(path))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_listed_from_a_safe_start_offset() {
        let start = |prefix: &str, after: Option<&str>, folder: &str| {
            let (after, found) = (after.map(str::to_owned), Vec::new());
            let listing = BucketListing { prefix, after: after.as_deref(), rows_max: 1, found };
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
