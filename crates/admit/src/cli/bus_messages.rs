//! Iterator over all messages of a bus, the same for every kind of bus.

use std::collections::{BTreeMap, VecDeque};

use admit_bus::file::LogMessages;
use admit_bus::{BusError, StoredMessage};

use crate::bus::BusReader;

/// Messages read per page.
const PAGE: usize = 1_000;

/// Maximum number of partitions of a topic.
const PARTITIONS_MAX: u32 = 10_000;

/// Iterator over a bus, topic by topic, partition by partition.
pub(super) struct BusMessages<'a> {
    source: &'a BusReader,
    topics: VecDeque<String>,
    position: Option<BusPosition>,
    /// Oldest offset of each partition; older messages have expired.
    oldest: BTreeMap<(String, u32), String>,
}

/// Position of the iterator.
enum BusPosition {
    Log(String, LogMessages),
    Partition { topic: String, partition: u32, last: String, page: VecDeque<StoredMessage> },
}

impl<'a> BusMessages<'a> {
    /// Iterates over all topics if the bus can list them, else over `topics`.
    pub(super) fn new(source: &'a BusReader, topics: Vec<String>) -> std::io::Result<Self> {
        let topics = match source {
            BusReader::File(reader) => reader.topics()?,
            BusReader::Network(_) => topics,
        };
        Ok(Self { source, topics: topics.into(), position: None, oldest: BTreeMap::new() })
    }

    /// Whether other programs may publish to the same topics.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.source, BusReader::Network(_))
    }

    /// Returns the next message. An error skips the rest of its topic.
    pub(super) async fn next(&mut self) -> Option<Result<StoredMessage, String>> {
        loop {
            let next = match self.position.take() {
                None => {
                    let topic = self.topics.pop_front()?;
                    self.open_topic(topic)
                }
                Some(BusPosition::Log(topic, mut records)) => match records.next() {
                    None => continue,
                    Some(Ok(record)) => {
                        self.position = Some(BusPosition::Log(topic, records));
                        Ok(Some(record))
                    }
                    Some(Err(error)) => Err((topic, error)),
                },
                Some(BusPosition::Partition { topic, partition, last, page }) => {
                    self.next_in_partition(topic, partition, last, page).await
                }
            };
            match next {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err((topic, error)) => return Some(Err(format!("topic {topic}: {error}"))),
            }
        }
    }

    fn open_topic(&mut self, topic: String) -> Result<Option<StoredMessage>, (String, BusError)> {
        self.position = Some(match self.source {
            BusReader::File(reader) => match reader.records(&topic) {
                Ok(records) => BusPosition::Log(topic, records),
                Err(error) => return Err((topic, error)),
            },
            BusReader::Network(_) => BusPosition::Partition {
                topic,
                partition: 0,
                last: String::new(),
                page: VecDeque::new(),
            },
        });
        Ok(None)
    }

    async fn next_in_partition(
        &mut self,
        topic: String,
        partition: u32,
        last: String,
        mut page: VecDeque<StoredMessage>,
    ) -> Result<Option<StoredMessage>, (String, BusError)> {
        let BusReader::Network(bus) = self.source else { return Ok(None) };
        if page.is_empty() {
            // Starts at the last offset, because not every bus can compute the next one.
            page = match bus.read(&topic, partition, &last, PAGE).await {
                Ok(page) => page.into(),
                Err(BusError::NoSuchPartition { .. }) if partition > 0 => return Ok(None),
                Err(error) => return Err((topic, error)),
            };
            if !last.is_empty()
                && page.front().is_some_and(|message| message.reference.offset == last)
            {
                page.pop_front();
            }
        }
        let Some(record) = page.pop_front() else {
            let partition = partition + 1;
            if partition < PARTITIONS_MAX {
                let (last, page) = (String::new(), VecDeque::new());
                self.position = Some(BusPosition::Partition { topic, partition, last, page });
            }
            return Ok(None);
        };
        let offset = record.reference.offset.clone();
        if last.is_empty() {
            self.oldest.insert((topic.clone(), partition), offset.clone());
        }
        self.position = Some(BusPosition::Partition { topic, partition, last: offset, page });
        Ok(Some(record))
    }

    /// Whether the retention of the bus has removed this offset.
    pub(super) fn has_expired(&self, topic: &str, partition: u32, offset: &str) -> bool {
        let oldest = self.oldest.get(&(topic.to_owned(), partition));
        oldest.is_some_and(|oldest| offset_order(offset) < offset_order(oldest))
    }
}

/// Sort key of an offset: a decimal number that may exceed every integer type.
fn offset_order(offset: &str) -> (usize, &str) {
    let digits = offset.trim_start_matches('0');
    (digits.len(), digits)
}
