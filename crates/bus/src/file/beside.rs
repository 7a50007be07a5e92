//! Reading beside a gate: without the folder's lock, also while a gate writes. It creates nothing
//! and changes nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{LINE_BYTES_MAX, PARTITION, line, log, topics_in};
use crate::name;
use crate::port::{BusError, OffsetKind, Record, Reference};

/// The logs of a folder, for reading from end to end.
#[derive(Clone, Debug)]
pub struct FileReader {
    root: PathBuf,
}

impl FileReader {
    /// The bus in `root`, which need not exist: nothing has been published then.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Topics that were published to, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn topics(&self) -> io::Result<Vec<String>> {
        match topics_in(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            topics => topics,
        }
    }

    /// Every message of a topic, in order. While a gate writes, the last ones may not be synced
    /// yet; a line that is still being written is not there yet.
    ///
    /// # Errors
    /// When it is no topic, or its log cannot be opened.
    pub fn records(&self, topic: &str) -> Result<Records, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        let path = self.root.join(topic).join(log::LOG);
        let lines = match File::open(&path) {
            Ok(file) => Some(BufReader::with_capacity(1 << 16, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unavailable(&path, error)),
        };
        Ok(Records { topic: topic.to_owned(), path, lines, offset: 0, text: Vec::new() })
    }
}

impl FileReader {
    /// How long the log of a topic is now, in bytes, so that whoever asks often need not read it;
    /// 0 for a topic nobody has published to.
    ///
    /// # Errors
    /// When it is no topic, or its log cannot be looked at.
    pub fn log_bytes(&self, topic: &str) -> Result<u64, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        let path = self.root.join(topic).join(log::LOG);
        match std::fs::metadata(&path) {
            Ok(facts) => Ok(facts.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(unavailable(&path, error)),
        }
    }
}

/// Messages of one topic; ends at the first error.
#[derive(Debug)]
pub struct Records {
    topic: String,
    path: PathBuf,
    lines: Option<BufReader<File>>,
    offset: u64,
    text: Vec<u8>,
}

impl Iterator for Records {
    type Item = Result<Record, BusError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read();
        if !matches!(record, Ok(Some(_))) {
            self.lines = None;
        }
        record.transpose()
    }
}

impl Records {
    fn read(&mut self) -> Result<Option<Record>, BusError> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        self.text.clear();
        lines
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut self.text)
            .map_err(|error| unavailable(&self.path, error))?;
        let Some(text) = self.text.strip_suffix(b"\n") else { return Ok(None) };
        let line = line::whole(text).map_err(|reason| BusError::Damaged {
            place: format!("line {} of {}", self.offset, self.path.display()),
            reason: reason.to_string(),
        })?;
        let record = Record {
            reference: Reference {
                topic: self.topic.clone(),
                partition: PARTITION,
                offset: self.offset.to_string(),
                offset_kind: OffsetKind::FileLine,
                published_at: line.head.at,
            },
            partition_key: line.partition_key.into_owned(),
            dedupe_key: line.head.dedupe_key.map(|key| key.into_owned()),
            payload: line.payload,
        };
        self.offset += 1;
        Ok(Some(record))
    }
}

fn unavailable(path: &Path, error: io::Error) -> BusError {
    BusError::Unavailable {
        reason: format!("could not read {}", path.display()),
        source: Some(Box::new(error)),
    }
}
