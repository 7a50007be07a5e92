//! Digests, made again from the files themselves.

use std::io::{self, Read as _};

use admit_artifacts::path;
use admit_core::hash::hex;
use admit_core::json::{self, Limits};
use sha2::{Digest as _, Sha256};

use crate::runner::gate_map::{DigestMethod, GateRule};
use crate::shape::is_hex;
use crate::streamer::pack::store::PackStore;

/// The flag is not part of what it vouches for.
pub(super) const FLAG: &str = "_passed.flag";

/// Most folders below each other in a bundle.
const DEPTH_MAX: usize = 8;

/// Most files of a bundle.
const FILES_MAX: usize = 100_000;

/// What is read at a time.
const CHUNK: usize = 256 * 1024;

/// What became of a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// Here it is.
    Digest(String),
    /// Something it is made of is not there.
    Missing(String),
    /// What is there contradicts itself.
    Conflict(String),
}

/// Makes the digest of a gate's bundle in `folder`.
pub(super) fn digest(store: &dyn PackStore, rule: &GateRule, folder: &str) -> io::Result<Made> {
    match &rule.index {
        Some(index) if rule.method != DigestMethod::Bundle => listed(store, rule, folder, index),
        _ => whole(store, folder),
    }
}

fn whole(store: &dyn PackStore, folder: &str) -> io::Result<Made> {
    let mut files = Vec::new();
    walk(store, folder, "", DEPTH_MAX, &mut files)?;
    files.retain(|file| file != FLAG);
    files.sort_unstable();
    if files.is_empty() {
        return Ok(Made::Missing(format!("{folder} holds nothing")));
    }
    let mut hash = Sha256::new();
    for file in files {
        let path = format!("{folder}/{file}");
        if !add(store, &path, &mut hash)? {
            return Ok(Made::Missing(path));
        }
    }
    Ok(Made::Digest(hex(&<[u8; 32]>::from(hash.finalize()))))
}

/// Every file below `folder`, by its path from there.
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
            return Err(io::Error::other(format!("{folder}{path} is too deep")));
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

/// One line of an index.
struct Member {
    path: String,
    digest: String,
}

fn listed(store: &dyn PackStore, rule: &GateRule, folder: &str, index: &str) -> io::Result<Made> {
    let place = format!("{folder}/{index}");
    let Some(bytes) = store.read(&place)? else { return Ok(Made::Missing(place)) };
    let Some(mut members) = members(&bytes) else {
        return Ok(Made::Conflict(format!("{place} is no list of files")));
    };
    // ASCII order of the paths as they are listed.
    members.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut hash = Sha256::new();
    for member in members {
        let path = if rule.is_from_pack {
            member.path.clone()
        } else {
            format!("{folder}/{}", member.path)
        };
        let mut own = Sha256::new();
        if !add(store, &path, &mut own)? {
            return Ok(Made::Missing(path));
        }
        // A list that lies about a file proves nothing about the others.
        if hex(&<[u8; 32]>::from(own.finalize())) != member.digest {
            return Ok(Made::Conflict(format!("{path} is not the file that {place} lists")));
        }
        match rule.method {
            DigestMethod::ListedDigests => hash.update(member.digest.as_bytes()),
            DigestMethod::Listed | DigestMethod::Bundle => {
                add(store, &path, &mut hash)?;
            }
        }
    }
    Ok(Made::Digest(hex(&<[u8; 32]>::from(hash.finalize()))))
}

/// The members of an index: paths that stay inside the pack, with their digests.
fn members(bytes: &[u8]) -> Option<Vec<Member>> {
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let index = json::parse(bytes, &limits).ok()?;
    let items = index.get("items").unwrap_or(&index).as_array()?;
    let members: Option<Vec<Member>> = items
        .iter()
        .map(|item| {
            let path = item.get("path")?.as_str().filter(|path| path::check(path).is_ok())?;
            let digest = item.get("sha256_hex")?.as_str()?.to_ascii_lowercase();
            is_hex(&digest, 64).then(|| Member { path: path.to_owned(), digest })
        })
        .collect();
    members.filter(|members| !members.is_empty() && members.len() <= FILES_MAX)
}

/// Adds the bytes of a file; `false` where there is none.
pub(super) fn add(store: &dyn PackStore, path: &str, hash: &mut Sha256) -> io::Result<bool> {
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
