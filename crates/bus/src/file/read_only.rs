//! Read-only access to a bus folder, without its lock and while a gate writes. Creates and changes
//! nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{LINE_BYTES_MAX, PARTITION, line, log, topics_in};
use crate::name;
use crate::port::{BusError, OffsetKind, Reference, StoredMessage};

/// Reader of the logs in a folder, from beginning to end.
#[derive(Clone, Debug)]
pub struct FileReader {
    root: PathBuf,
}

impl FileReader {
    /// Opens nothing yet; a folder that does not exist is an empty bus.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Topics with a log, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn topics(&self) -> io::Result<Vec<String>> {
        match topics_in(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            topics => topics,
        }
    }

    /// Every message of a topic, in order. While a gate writes, the last messages may not be synced
    /// yet; a partly written line is not returned.
    ///
    /// # Errors
    /// When the topic is invalid or its log cannot be opened.
    pub fn records(&self, topic: &str) -> Result<LogMessages, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        let path = self.root.join(topic).join(log::LOG);
        let lines = match File::open(&path) {
            Ok(file) => Some(BufReader::with_capacity(1 << 16, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unavailable(&path, error)),
        };
        Ok(LogMessages { topic: topic.to_owned(), path, lines, offset: 0, text: Vec::new() })
    }
}

impl FileReader {
    /// Current length of a topic's log in bytes, cheap enough to poll; 0 for a topic that was never
    /// published to.
    ///
    /// # Errors
    /// When the topic is invalid or the log's metadata cannot be read.
    pub fn log_bytes(&self, topic: &str) -> Result<u64, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        let path = self.root.join(topic).join(log::LOG);
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(unavailable(&path, error)),
        }
    }
}

/// Iterator over the messages of one topic; ends at the first error.
#[derive(Debug)]
pub struct LogMessages {
    topic: String,
    path: PathBuf,
    lines: Option<BufReader<File>>,
    offset: u64,
    text: Vec<u8>,
}

impl Iterator for LogMessages {
    type Item = Result<StoredMessage, BusError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read();
        if !matches!(record, Ok(Some(_))) {
            self.lines = None;
        }
        record.transpose()
    }
}

impl LogMessages {
    fn read(&mut self) -> Result<Option<StoredMessage>, BusError> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        self.text.clear();
        lines
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut self.text)
            .map_err(|error| unavailable(&self.path, error))?;
        let Some(text) = self.text.strip_suffix(b"\n") else { return Ok(None) };
        let line = line::parse(text).map_err(|reason| BusError::Damaged {
            place: format!("line {} of {}", self.offset, self.path.display()),
            reason: reason.to_string(),
        })?;
        let record = StoredMessage {
            reference: Reference {
                topic: self.topic.clone(),
                partition: PARTITION,
                offset: self.offset.to_string(),
                offset_kind: OffsetKind::FileLine,
                published_at: line.header.at,
            },
            partition_key: line.partition_key.into_owned(),
            dedupe_key: line.header.dedupe_key.map(|key| key.into_owned()),
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
