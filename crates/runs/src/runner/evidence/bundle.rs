//! Digests of gate bundles, recomputed from the files.

use std::io::{self, Read as _};

use admit_artifacts::path;
use admit_core::hash::hex;
use admit_core::json::{self, Limits};
use sha2::{Digest as _, Sha256};

use crate::id_format::is_hex;
use crate::runner::gate_map::{DigestMethod, GateRule};
use crate::streamer::pack::store::PackStore;

/// Name of the flag file, which is not part of the digest.
pub(super) const FLAG: &str = "_passed.flag";

/// Maximum folder depth of a bundle.
const DEPTH_MAX: usize = 8;

/// Maximum files of a bundle.
const FILES_MAX: usize = 100_000;

/// Bytes per read.
const CHUNK: usize = 256 * 1024;

/// Result of computing a bundle's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BundleDigest {
    /// The digest.
    Computed(String),
    /// A file is missing; its path.
    Missing(String),
    /// The bundle is contradictory.
    Conflict(String),
}

/// Computes the digest of a gate's bundle in `folder`.
pub(super) fn compute(
    store: &dyn PackStore,
    rule: &GateRule,
    folder: &str,
) -> io::Result<BundleDigest> {
    match &rule.index {
        Some(index) if rule.method != DigestMethod::Bundle => {
            compute_listed(store, rule, folder, index)
        }
        _ => compute_all(store, folder),
    }
}

fn compute_all(store: &dyn PackStore, folder: &str) -> io::Result<BundleDigest> {
    let mut files = Vec::new();
    walk(store, folder, "", DEPTH_MAX, &mut files)?;
    files.retain(|file| file != FLAG);
    files.sort_unstable();
    if files.is_empty() {
        return Ok(BundleDigest::Missing(format!("{folder} is empty")));
    }
    let mut hash = Sha256::new();
    for file in files {
        let path = format!("{folder}/{file}");
        if !hash_file(store, &path, &mut hash)? {
            return Ok(BundleDigest::Missing(path));
        }
    }
    Ok(BundleDigest::Computed(hex(&<[u8; 32]>::from(hash.finalize()))))
}

/// Lists all files below `folder`, with relative paths.
fn walk(
    store: &dyn PackStore,
    folder: &str,
    below: &str,
    depth: usize,
    files: &mut Vec<String>,
) -> io::Result<()> {
    for name in store.names(&format!("{folder}{below}"))?.unwrap_or_default() {
        let path = format!("{below}/{name}");
        let is_folder = store.names(&format!("{folder}{path}"))?.is_some();
        if is_folder && depth == 0 {
            return Err(io::Error::other(format!(
                "{folder}{path} exceeds the maximum folder depth of {DEPTH_MAX}"
            )));
        }
        if is_folder {
            walk(store, folder, &path, depth - 1, files)?;
        } else {
            files.push(path.trim_start_matches('/').to_owned());
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("{folder} has more than {FILES_MAX} files")));
        }
    }
    Ok(())
}

/// Entry of an index.
struct BundleEntry {
    path: String,
    digest: String,
}

fn compute_listed(
    store: &dyn PackStore,
    rule: &GateRule,
    folder: &str,
    index: &str,
) -> io::Result<BundleDigest> {
    let index_path = format!("{folder}/{index}");
    let Some(bytes) = store.read(&index_path)? else {
        return Ok(BundleDigest::Missing(index_path));
    };
    let Some(mut members) = parse_index(&bytes) else {
        return Ok(BundleDigest::Conflict(format!("{index_path} is not a valid list of files")));
    };
    // ASCII order of the listed paths.
    members.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut hash = Sha256::new();
    for member in members {
        let path = if rule.is_from_pack {
            member.path.clone()
        } else {
            format!("{folder}/{}", member.path)
        };
        let mut file_hash = Sha256::new();
        if !hash_file(store, &path, &mut file_hash)? {
            return Ok(BundleDigest::Missing(path));
        }
        // An index with one wrong digest proves nothing.
        if hex(&<[u8; 32]>::from(file_hash.finalize())) != member.digest {
            return Ok(BundleDigest::Conflict(format!(
                "{path} does not match its digest in {index_path}"
            )));
        }
        match rule.method {
            DigestMethod::ListedDigests => hash.update(member.digest.as_bytes()),
            DigestMethod::Listed | DigestMethod::Bundle => {
                hash_file(store, &path, &mut hash)?;
            }
        }
    }
    Ok(BundleDigest::Computed(hex(&<[u8; 32]>::from(hash.finalize()))))
}

/// Parses an index. Paths must stay inside the pack.
fn parse_index(bytes: &[u8]) -> Option<Vec<BundleEntry>> {
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let index = json::parse(bytes, &limits).ok()?;
    let items = index.get("items").unwrap_or(&index).as_array()?;
    let members: Option<Vec<BundleEntry>> = items
        .iter()
        .map(|item| {
            let path = item.get("path")?.as_str().filter(|path| path::check(path).is_ok())?;
            let digest = item.get("sha256_hex")?.as_str()?.to_ascii_lowercase();
            is_hex(&digest, 64).then(|| BundleEntry { path: path.to_owned(), digest })
        })
        .collect();
    members.filter(|members| !members.is_empty() && members.len() <= FILES_MAX)
}

/// Adds the bytes of a file to a hash; `false` if the file does not exist.
pub(super) fn hash_file(store: &dyn PackStore, path: &str, hash: &mut Sha256) -> io::Result<bool> {
    let mut file = match store.open(path) {
        Ok(file) => file.beginning()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(true),
            read => hash.update(&chunk[..read]),
        }
    }
}
