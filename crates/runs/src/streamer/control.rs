//! Reading the control bus: over the bus port, or from the files of a gate that has the file bus
//! open.

use std::sync::{Arc, Mutex, PoisonError};

use admit_bus::file::FileReader;
use admit_bus::{BoxFuture, Bus, BusError, OffsetKind, StoredMessage};
use tokio::task::spawn_blocking;

/// Source of READY messages. Offsets are the bus's own strings; an empty one is the beginning.
pub trait Control: Send + Sync {
    /// Like [`Bus::read`].
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>>;

    /// The kind of its offsets: a position on one kind of bus is meaningless on another.
    fn offset_kind(&self) -> OffsetKind;
}

impl Control for Arc<dyn Bus> {
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        Bus::read(&**self, topic, partition, from, rows_max)
    }

    fn offset_kind(&self) -> OffsetKind {
        Bus::offset_kind(&**self)
    }
}

/// The file bus of a gate on this machine, read without its lock. Its log is read from the
/// beginning, but only if it has grown since the last read without new messages.
pub struct FileControl {
    reader: FileReader,
    /// Topic, offset and log length of the last read that found nothing new.
    read: Arc<Mutex<Option<(String, String, u64)>>>,
}

impl FileControl {
    /// Reads the file bus through `reader`.
    pub fn new(reader: FileReader) -> Self {
        Self { reader, read: Arc::default() }
    }
}

impl Control for FileControl {
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let (reader, read) = (self.reader.clone(), Arc::clone(&self.read));
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move {
            if partition != 0 {
                return Err(BusError::NoSuchPartition { topic, partition });
            }
            let read_task =
                spawn_blocking(move || read_if_grown(&reader, &read, topic, from, rows_max));
            let interrupted = |error| BusError::Unavailable {
                reason: "the read was interrupted".to_owned(),
                source: Some(Box::new(error)),
            };
            read_task.await.map_err(interrupted)?
        })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::FileLine
    }
}

fn read_if_grown(
    reader: &FileReader,
    read: &Mutex<Option<(String, String, u64)>>,
    topic: String,
    from: String,
    rows_max: usize,
) -> Result<Vec<StoredMessage>, BusError> {
    let bytes = reader.log_bytes(&topic)?;
    let position = (topic, from, bytes);
    let is_unchanged =
        read.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&position);
    let (topic, from, _) = &position;
    let first: u64 = match from.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| BusError::NotAnOffset {
            offset: text.to_owned(),
            kind: OffsetKind::FileLine,
        })?,
    };
    if is_unchanged {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (line, record) in (0..).zip(reader.records(topic)?) {
        // Also for a line before the range: nothing after a damaged line can be trusted.
        let record = record?;
        if line >= first {
            found.push(record);
        }
        if found.len() >= rows_max {
            break;
        }
    }
    if found.is_empty() {
        *read.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }
    Ok(found)
}
