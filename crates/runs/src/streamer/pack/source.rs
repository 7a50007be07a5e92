//! A part file for reading here and there: on a disk, or in pieces from far away.
//!
//! Columns are read side by side, so a reader jumps between as many places as there are columns. From
//! far away it reads blocks, and keeps the last of them: memory stays below [`KEPT_BYTES_MAX`] for
//! each open file, whatever its size and the size of its row groups.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes that are asked for at a time.
const BLOCK_BYTES: u64 = 512 << 10;
/// Bytes that are kept of one file.
pub const KEPT_BYTES_MAX: u64 = 32 << 20;
const BLOCKS_MAX: usize = (KEPT_BYTES_MAX / BLOCK_BYTES) as usize;

/// A file of which any piece can be read. It blocks.
pub trait Pieces: Send + Sync {
    /// How long it is.
    fn bytes(&self) -> u64;

    /// A piece of it, whole.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, start: u64, length: usize) -> io::Result<Bytes>;
}

/// A part file.
pub enum Source {
    /// On a disk.
    Disk(File),
    /// Elsewhere.
    Far(Far),
}

impl Source {
    /// Reads it from its beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn beginning(&self) -> io::Result<Reading> {
        self.get_read(0).map_err(io::Error::other)
    }
}

impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::Disk(file)
    }
}

/// A file elsewhere, and what is kept of it.
#[derive(Clone)]
pub struct Far {
    pieces: Arc<dyn Pieces>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    blocks: HashMap<u64, Bytes>,
    /// The one used longest ago first.
    order: VecDeque<u64>,
}

impl Kept {
    fn get(&mut self, block: u64) -> Option<Bytes> {
        let bytes = self.blocks.get(&block)?.clone();
        self.order.retain(|other| *other != block);
        self.order.push_back(block);
        Some(bytes)
    }

    fn keep(&mut self, block: u64, bytes: Bytes) {
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

impl Far {
    /// A file elsewhere.
    pub fn new(pieces: Arc<dyn Pieces>) -> Self {
        Self { pieces, kept: Arc::default() }
    }

    fn block(&self, block: u64) -> io::Result<Bytes> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(block);
        if let Some(bytes) = kept {
            return Ok(bytes);
        }
        let start = block * BLOCK_BYTES;
        let length = self.pieces.bytes().saturating_sub(start).min(BLOCK_BYTES);
        let bytes = self.pieces.read(start, usize::try_from(length).unwrap_or_default())?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(block, bytes.clone());
        Ok(bytes)
    }

    /// What there is from `start` on, up to the end of a block; empty at the end of the file.
    fn some(&self, start: u64) -> io::Result<Bytes> {
        if start >= self.pieces.bytes() {
            return Ok(Bytes::new());
        }
        let bytes = self.block(start / BLOCK_BYTES)?;
        let from = usize::try_from(start % BLOCK_BYTES).unwrap_or_default();
        Ok(bytes.slice(from.min(bytes.len())..))
    }

    fn exactly(&self, start: u64, length: usize) -> io::Result<Bytes> {
        // What is longer than a few blocks would only push others out.
        if length as u64 > 4 * BLOCK_BYTES {
            let bytes = self.pieces.read(start, length)?;
            return match bytes.len() == length {
                true => Ok(bytes),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut first = self.some(start)?;
        if first.len() >= length {
            return Ok(first.split_to(length));
        }
        let mut whole = BytesMut::with_capacity(length);
        let mut next = start;
        while whole.len() < length {
            let some = self.some(next)?;
            if some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let take = some.len().min(length - whole.len());
            whole.extend_from_slice(&some[..take]);
            next += take as u64;
        }
        Ok(whole.freeze())
    }
}

/// Reads on from one place.
pub enum Reading {
    /// On a disk.
    Disk(BufReader<File>),
    /// Elsewhere: the file, and where.
    Far(Far, u64),
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Disk(file) => file.read(buffer),
            Self::Far(far, at) => {
                let some = far.some(*at)?;
                let taken = some.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&some[..taken]);
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
            Self::Far(far) => far.pieces.bytes(),
        }
    }
}

impl ChunkReader for Source {
    type T = Reading;

    fn get_read(&self, start: u64) -> Result<Reading> {
        match self {
            Self::Disk(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(Reading::Disk(BufReader::new(file)))
            }
            Self::Far(far) => Ok(Reading::Far(far.clone(), start)),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match self {
            Self::Disk(file) => file.get_bytes(start, length),
            Self::Far(far) => {
                far.exactly(start, length).map_err(|error| ParquetError::External(Box::new(error)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A file of known bytes that counts what is asked of it.
    struct Known {
        bytes: u64,
        asked: AtomicU64,
    }

    fn byte(at: u64) -> u8 {
        u8::try_from(at * 31 % 251).unwrap()
    }

    impl Pieces for Known {
        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let end = (start + length as u64).min(self.bytes);
            Ok((start..end).map(byte).collect::<Vec<u8>>().into())
        }
    }

    fn known(bytes: u64) -> (Arc<Known>, Source) {
        let known = Arc::new(Known { bytes, asked: AtomicU64::new(0) });
        (Arc::clone(&known), Source::Far(Far::new(known)))
    }

    fn is_right(bytes: &[u8], start: u64) -> bool {
        bytes.iter().zip(start..).all(|(found, at)| *found == byte(at))
    }

    #[test]
    fn any_piece_is_what_the_file_says_wherever_blocks_end() {
        let (_, source) = known(3 * BLOCK_BYTES + 17);
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
    fn what_was_read_lately_is_not_asked_for_again_and_no_more_is_kept() {
        let blocks = BLOCKS_MAX as u64 * 3;
        let (file, source) = known(blocks * BLOCK_BYTES);
        for _ in 0..100 {
            for place in 0..8 {
                assert!(is_right(
                    &source.get_bytes(place * BLOCK_BYTES + 9, 100).unwrap(),
                    9 + place * BLOCK_BYTES
                ));
            }
        }
        assert_eq!(file.asked.load(Ordering::Relaxed), 8);
        for block in 0..blocks {
            source.get_bytes(block * BLOCK_BYTES, 1).unwrap();
        }
        let Source::Far(far) = &source else { panic!("it is far") };
        let kept = far.kept.lock().unwrap();
        assert_eq!((kept.blocks.len(), kept.order.len()), (BLOCKS_MAX, BLOCKS_MAX));
    }
}
