//! The control bus, for reading: through the bus port, or beside a gate that has the file bus open.

use std::sync::{Arc, Mutex, PoisonError};

use admit_bus::file::FileReader;
use admit_bus::{BoxFuture, Bus, BusError, OffsetKind, Record};
use tokio::task::spawn_blocking;

/// Where READY messages are read from. Offsets are the bus's own texts; an empty one is the
/// beginning.
pub trait Control: Send + Sync {
    /// As [`Bus::read`].
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>>;

    /// What its offsets are: a position on one kind of bus says nothing on another.
    fn offset_kind(&self) -> OffsetKind;
}

impl Control for Arc<dyn Bus> {
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        Bus::read(&**self, topic, partition, from, rows_max)
    }

    fn offset_kind(&self) -> OffsetKind {
        Bus::offset_kind(&**self)
    }
}

/// The file bus of a gate that runs beside us. Its log is read from the beginning, but only when it
/// has grown since nothing new was found in it.
pub struct Beside {
    reader: FileReader,
    /// The topic, the offset and the length of the log when it was last read to its end.
    read: Arc<Mutex<Option<(String, String, u64)>>>,
}

impl Beside {
    /// The file bus that this reader reads.
    pub fn new(reader: FileReader) -> Self {
        Self { reader, read: Arc::default() }
    }
}

impl Control for Beside {
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        let (reader, read) = (self.reader.clone(), Arc::clone(&self.read));
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move {
            if partition != 0 {
                return Err(BusError::NoSuchPartition { topic, partition });
            }
            let work = spawn_blocking(move || read_beside(&reader, &read, topic, from, rows_max));
            let cut = |error| BusError::Unavailable {
                reason: "the read was cut short".to_owned(),
                source: Some(Box::new(error)),
            };
            work.await.map_err(cut)?
        })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::FileLine
    }
}

fn read_beside(
    reader: &FileReader,
    read: &Mutex<Option<(String, String, u64)>>,
    topic: String,
    from: String,
    rows_max: usize,
) -> Result<Vec<Record>, BusError> {
    let bytes = reader.log_bytes(&topic)?;
    let place = (topic, from, bytes);
    let known = read.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&place);
    let (topic, from, _) = &place;
    let first: u64 = match from.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| BusError::NotAnOffset {
            offset: text.to_owned(),
            kind: OffsetKind::FileLine,
        })?,
    };
    if known {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (line, record) in (0..).zip(reader.records(topic)?) {
        // Also of a line that is not asked for: what comes after it cannot be trusted.
        let record = record?;
        if line >= first {
            found.push(record);
        }
        if found.len() >= rows_max {
            break;
        }
    }
    if found.is_empty() {
        *read.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }
    Ok(found)
}
