//! Every message of a bus, one after the other, whatever the bus is.

use std::collections::{BTreeMap, VecDeque};

use admit_bus::file::LogMessages;
use admit_bus::{BusError, StoredMessage};

use crate::bus::Reading;

/// Messages that are read at a time.
const PAGE: usize = 1_000;

/// Most partitions of a topic.
const PARTITIONS_MAX: u32 = 10_000;

/// Goes through a bus topic by topic, partition by partition.
pub(super) struct Messages<'a> {
    source: &'a Reading,
    topics: VecDeque<String>,
    at: Option<At>,
    /// The oldest message of each partition: what is older the bus has let go.
    oldest: BTreeMap<(String, u32), String>,
}

/// Where it is.
enum At {
    Log(String, LogMessages),
    Partition { topic: String, partition: u32, last: String, page: VecDeque<StoredMessage> },
}

impl<'a> Messages<'a> {
    /// Over these topics; over all that are there where the bus can list them.
    pub(super) fn over(source: &'a Reading, topics: Vec<String>) -> std::io::Result<Self> {
        let topics = match source {
            Reading::Beside(reader) => reader.topics()?,
            Reading::Bus(_) => topics,
        };
        Ok(Self { source, topics: topics.into(), at: None, oldest: BTreeMap::new() })
    }

    /// Whether others may publish to the same topics.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.source, Reading::Bus(_))
    }

    /// The next message, or what is wrong with its topic, which then is left.
    pub(super) async fn next(&mut self) -> Option<Result<StoredMessage, String>> {
        loop {
            let next = match self.at.take() {
                None => {
                    let topic = self.topics.pop_front()?;
                    self.begin(topic)
                }
                Some(At::Log(topic, mut records)) => match records.next() {
                    None => continue,
                    Some(Ok(record)) => {
                        self.at = Some(At::Log(topic, records));
                        Ok(Some(record))
                    }
                    Some(Err(error)) => Err((topic, error)),
                },
                Some(At::Partition { topic, partition, last, page }) => {
                    self.step(topic, partition, last, page).await
                }
            };
            match next {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err((topic, error)) => return Some(Err(format!("topic {topic}: {error}"))),
            }
        }
    }

    fn begin(&mut self, topic: String) -> Result<Option<StoredMessage>, (String, BusError)> {
        self.at = Some(match self.source {
            Reading::Beside(reader) => match reader.records(&topic) {
                Ok(records) => At::Log(topic, records),
                Err(error) => return Err((topic, error)),
            },
            Reading::Bus(_) => {
                At::Partition { topic, partition: 0, last: String::new(), page: VecDeque::new() }
            }
        });
        Ok(None)
    }

    async fn step(
        &mut self,
        topic: String,
        partition: u32,
        last: String,
        mut page: VecDeque<StoredMessage>,
    ) -> Result<Option<StoredMessage>, (String, BusError)> {
        let Reading::Bus(bus) = self.source else { return Ok(None) };
        if page.is_empty() {
            // From the last one on, because not every bus knows what comes after an offset.
            page = match bus.read(&topic, partition, &last, PAGE).await {
                Ok(page) => page.into(),
                Err(BusError::NoSuchPartition { .. }) if partition > 0 => return Ok(None),
                Err(error) => return Err((topic, error)),
            };
            if !last.is_empty() && page.front().is_some_and(|one| one.reference.offset == last) {
                page.pop_front();
            }
        }
        let Some(record) = page.pop_front() else {
            let partition = partition + 1;
            if partition < PARTITIONS_MAX {
                let (last, page) = (String::new(), VecDeque::new());
                self.at = Some(At::Partition { topic, partition, last, page });
            }
            return Ok(None);
        };
        let offset = record.reference.offset.clone();
        if last.is_empty() {
            self.oldest.insert((topic.clone(), partition), offset.clone());
        }
        self.at = Some(At::Partition { topic, partition, last: offset, page });
        Ok(Some(record))
    }

    /// Whether the bus has let go of what was there, by its own rule.
    pub(super) fn is_gone(&self, topic: &str, partition: u32, offset: &str) -> bool {
        let oldest = self.oldest.get(&(topic.to_owned(), partition));
        oldest.is_some_and(|oldest| size(offset) < size(oldest))
    }
}

/// Offsets are whole numbers, some of them larger than any integer.
fn size(offset: &str) -> (usize, &str) {
    let digits = offset.trim_start_matches('0');
    (digits.len(), digits)
}
