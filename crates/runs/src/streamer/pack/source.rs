//! Random access to a part file: on disk, or remote by ranges.
//!
//! Columns are read in parallel, so a reader alternates between as many positions as there are
//! columns. Remote files are read in blocks, the latest of which are cached: memory stays below
//! [`CACHED_BYTES_MAX`] per open file, whatever its size and that of its row groups.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes per request.
const BLOCK_BYTES: u64 = 512 << 10;
/// Maximum cached bytes per file.
pub const CACHED_BYTES_MAX: u64 = 32 << 20;
const BLOCKS_MAX: usize = (CACHED_BYTES_MAX / BLOCK_BYTES) as usize;

/// File with random access by ranges. Calls block.
pub trait RangeReader: Send + Sync {
    /// Its length.
    fn bytes(&self) -> u64;

    /// Reads a range completely.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, start: u64, length: usize) -> io::Result<Bytes>;
}

/// A part file.
pub enum Source {
    /// On a disk.
    Disk(File),
    /// Remote.
    Remote(RemoteFile),
}

impl Source {
    /// Opens a reader at the beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn beginning(&self) -> io::Result<SourceReader> {
        self.get_read(0).map_err(io::Error::other)
    }
}

impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::Disk(file)
    }
}

/// Remote file with a block cache.
#[derive(Clone)]
pub struct RemoteFile {
    file: Arc<dyn RangeReader>,
    cache: Arc<Mutex<BlockCache>>,
}

#[derive(Default)]
struct BlockCache {
    blocks: HashMap<u64, Bytes>,
    /// Least recently used first.
    order: VecDeque<u64>,
}

impl BlockCache {
    fn get(&mut self, block: u64) -> Option<Bytes> {
        let bytes = self.blocks.get(&block)?.clone();
        self.order.retain(|other| *other != block);
        self.order.push_back(block);
        Some(bytes)
    }

    fn insert(&mut self, block: u64, bytes: Bytes) {
        if self.blocks.insert(block, bytes).is_none() {
            self.order.push_back(block);
        }
        while self.order.len() > BLOCKS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.blocks.remove(&oldest);
            }
        }
    }
}

impl RemoteFile {
    /// Wraps a remote file.
    pub fn new(file: Arc<dyn RangeReader>) -> Self {
        Self { file, cache: Arc::default() }
    }

    fn block(&self, block: u64) -> io::Result<Bytes> {
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(block);
        if let Some(bytes) = cached {
            return Ok(bytes);
        }
        let start = block * BLOCK_BYTES;
        let length = self.file.bytes().saturating_sub(start).min(BLOCK_BYTES);
        let bytes = self.file.read(start, usize::try_from(length).unwrap_or_default())?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(block, bytes.clone());
        Ok(bytes)
    }

    /// Bytes from `start` to the end of its block; empty at the end of the file.
    fn available(&self, start: u64) -> io::Result<Bytes> {
        if start >= self.file.bytes() {
            return Ok(Bytes::new());
        }
        let bytes = self.block(start / BLOCK_BYTES)?;
        let from = usize::try_from(start % BLOCK_BYTES).unwrap_or_default();
        Ok(bytes.slice(from.min(bytes.len())..))
    }

    fn read_exact(&self, start: u64, length: usize) -> io::Result<Bytes> {
        // Longer ranges bypass the cache, which they would only evict.
        if length as u64 > 4 * BLOCK_BYTES {
            let bytes = self.file.read(start, length)?;
            return match bytes.len() == length {
                true => Ok(bytes),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut first = self.available(start)?;
        if first.len() >= length {
            return Ok(first.split_to(length));
        }
        let mut whole = BytesMut::with_capacity(length);
        let mut next = start;
        while whole.len() < length {
            let available = self.available(next)?;
            if available.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let take = available.len().min(length - whole.len());
            whole.extend_from_slice(&available[..take]);
            next += take as u64;
        }
        Ok(whole.freeze())
    }
}

/// Sequential reader from a position.
pub enum SourceReader {
    /// On a disk.
    Disk(BufReader<File>),
    /// Remote file and position.
    Remote(RemoteFile, u64),
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Disk(file) => file.read(buffer),
            Self::Remote(remote, at) => {
                let available = remote.available(*at)?;
                let taken = available.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&available[..taken]);
                *at += taken as u64;
                Ok(taken)
            }
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::Disk(file) => Length::len(file),
            Self::Remote(remote) => remote.file.bytes(),
        }
    }
}

impl ChunkReader for Source {
    type T = SourceReader;

    fn get_read(&self, start: u64) -> Result<SourceReader> {
        match self {
            Self::Disk(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(SourceReader::Disk(BufReader::new(file)))
            }
            Self::Remote(remote) => Ok(SourceReader::Remote(remote.clone(), start)),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match self {
            Self::Disk(file) => file.get_bytes(start, length),
            Self::Remote(remote) => remote
                .read_exact(start, length)
                .map_err(|error| ParquetError::External(Box::new(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// File with known content that counts requests.
    struct KnownFile {
        bytes: u64,
        requests: AtomicU64,
    }

    fn byte(at: u64) -> u8 {
        u8::try_from(at * 31 % 251).unwrap()
    }

    impl RangeReader for KnownFile {
        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let end = (start + length as u64).min(self.bytes);
            Ok((start..end).map(byte).collect::<Vec<u8>>().into())
        }
    }

    fn known_source(bytes: u64) -> (Arc<KnownFile>, Source) {
        let file = Arc::new(KnownFile { bytes, requests: AtomicU64::new(0) });
        (Arc::clone(&file), Source::Remote(RemoteFile::new(file)))
    }

    fn is_right(bytes: &[u8], start: u64) -> bool {
        bytes.iter().zip(start..).all(|(found, at)| *found == byte(at))
    }

    #[test]
    fn any_range_is_read_correctly_across_blocks() {
        let (_, source) = known_source(3 * BLOCK_BYTES + 17);
        for start in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES - 5, 3 * BLOCK_BYTES] {
            for length in [1, 16, 17] {
                let bytes = source.get_bytes(start, length).unwrap();
                assert_eq!(bytes.len(), length);
                assert!(is_right(&bytes, start), "{start}+{length}");
            }
        }
        let whole = source.get_bytes(0, usize::try_from(source.len()).unwrap()).unwrap();
        assert!(is_right(&whole, 0));
        assert!(source.get_bytes(3 * BLOCK_BYTES, 18).is_err(), "beyond the end");
        let mut rest = Vec::new();
        source.get_read(BLOCK_BYTES + 3).unwrap().read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len() as u64, 2 * BLOCK_BYTES + 14);
        assert!(is_right(&rest, BLOCK_BYTES + 3));
    }

    #[test]
    fn recent_blocks_are_cached_up_to_the_limit() {
        let blocks = BLOCKS_MAX as u64 * 3;
        let (file, source) = known_source(blocks * BLOCK_BYTES);
        for _ in 0..100 {
            for place in 0..8 {
                assert!(is_right(
                    &source.get_bytes(place * BLOCK_BYTES + 9, 100).unwrap(),
                    9 + place * BLOCK_BYTES
                ));
            }
        }
        assert_eq!(file.requests.load(Ordering::Relaxed), 8);
        for block in 0..blocks {
            source.get_bytes(block * BLOCK_BYTES, 1).unwrap();
        }
        let Source::Remote(remote) = &source else { panic!("not remote") };
        let cache = remote.cache.lock().unwrap();
        assert_eq!((cache.blocks.len(), cache.order.len()), (BLOCKS_MAX, BLOCKS_MAX));
    }
}
