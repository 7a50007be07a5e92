//! Searches by timestamp and reads by offset. Everything here blocks and runs on blocking threads.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use admit_core::Millis;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, Timestamp, TopicPartitionList};

use super::{DEDUPE_KEY, Options};
use crate::name;
use crate::port::{
    BusError, BusHealth, OffsetKind, Reference, SearchQuery, SearchResult, StoredMessage,
};
use crate::search_window::{SearchWindow, search_windows};

/// Maximum messages per read.
const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a read returns early.
const READ_BYTES_MAX: usize = 16 << 20;
/// Idle consumers kept per isolation level.
const IDLE_MAX: usize = 2;
/// Poll timeout before the deadline is checked.
const POLL: Duration = Duration::from_millis(100);

/// Partition layout of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicLayout {
    /// Number of partitions.
    pub(super) partitions: i32,
    /// Number of replicas of the least replicated partition.
    pub(super) replicas: usize,
    /// Whether every partition has a leader.
    pub(super) has_leaders: bool,
}

/// Isolation level of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isolation {
    /// Only committed transactions, up to the first open one: for reads.
    Committed,
    /// All messages: for searches. Our messages are not transactional, and an open transaction of
    /// another producer must not hide them.
    All,
}

/// Queries a cluster, with consumers that belong to no group and commit no offsets.
pub(super) struct QueryClient {
    options: Options,
    idle: Mutex<Vec<(Isolation, BaseConsumer)>>,
    /// Whether the brokers failed to return topic settings.
    pub(super) has_no_settings: AtomicBool,
}

/// Offset range of one partition to read, inclusive.
#[derive(Clone, Copy, Debug)]
struct OffsetRange {
    partition: i32,
    first: i64,
    last: i64,
    /// Whether retention may have removed older messages of the time range.
    may_be_incomplete: bool,
}

/// Result of visiting one message.
enum Visit {
    Continue,
    /// This partition is done.
    PartitionDone,
    /// The whole scan is done.
    Stop,
}

impl QueryClient {
    pub(super) fn new(options: &Options) -> Result<Self, KafkaError> {
        let (idle, has_no_settings) = (Mutex::default(), AtomicBool::new(false));
        let client = Self { options: options.clone(), idle, has_no_settings };
        let first = client.consumer(Isolation::All)?;
        client.put_back(Isolation::All, first);
        Ok(client)
    }

    fn consumer(&self, isolation: Isolation) -> Result<BaseConsumer, KafkaError> {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let index = idle.iter().position(|(kind, _)| *kind == isolation);
            index.map(|index| idle.swap_remove(index))
        };
        if let Some((_, consumer)) = idle {
            return Ok(consumer);
        }
        let level = match isolation {
            Isolation::Committed => "read_committed",
            Isolation::All => "read_uncommitted",
        };
        self.options
            .client()
            .set("group.id", "admit-look")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("isolation.level", level)
            .set("fetch.wait.max.ms", "50")
            .set("fetch.error.backoff.ms", "50")
            .set("topic.metadata.refresh.fast.interval.ms", "50")
            .create()
    }

    fn put_back(&self, isolation: Isolation, consumer: BaseConsumer) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let same_level = idle.iter().filter(|(kind, _)| *kind == isolation).count();
        if same_level < IDLE_MAX && consumer.unassign().is_ok() {
            idle.push((isolation, consumer));
        }
    }

    /// Layout of a topic; `None` if it does not exist.
    pub(super) fn layout(&self, name: &str) -> Result<Option<TopicLayout>, String> {
        let consumer = self.consumer(Isolation::All).map_err(|error| error.to_string())?;
        let layout = layout(&consumer, name, self.options.request_timeout);
        self.put_back(Isolation::All, consumer);
        layout.map_err(|error| self.metadata_error(name, &error))
    }

    /// Error text of a failed metadata request, with advice.
    fn metadata_error(&self, name: &str, error: &KafkaError) -> String {
        use RDKafkaErrorCode as Code;
        match error.rdkafka_error_code() {
            Some(
                Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::Resolve,
            ) => format!(
                "no kafka broker responds at {}: {error}; check bus.url, and that the brokers \
                 advertise addresses that are reachable from here",
                self.options.servers
            ),
            _ => format!("failed to get metadata of {name} from kafka: {error}"),
        }
    }

    pub(super) fn health(&self, topics: &[String]) -> BusHealth {
        if topics.is_empty() {
            let consumer = match self.consumer(Isolation::All) {
                Ok(consumer) => consumer,
                Err(error) => return BusHealth::Unknown { reason: error.to_string() },
            };
            let metadata = consumer.fetch_metadata(None, self.options.request_timeout);
            let health = match metadata {
                Ok(_) => BusHealth::Up,
                Err(error) => BusHealth::Down { reason: format!("no broker responds: {error}") },
            };
            self.put_back(Isolation::All, consumer);
            return health;
        }
        for topic in topics {
            if let Err(reason) = name::check_topic(topic) {
                return BusHealth::Down { reason: format!("invalid topic {topic:?}: {reason}") };
            }
            let name = self.options.topic_of(topic);
            let reason = match self.layout(&name) {
                Ok(Some(layout)) if layout.has_leaders => continue,
                Ok(Some(_)) => format!("a partition of topic {name} has no leader"),
                Ok(None) => format!("topic {name} does not exist"),
                Err(reason) => reason,
            };
            return BusHealth::Down { reason };
        }
        BusHealth::Up
    }

    pub(super) fn find(&self, queries: &[SearchQuery]) -> Vec<SearchResult> {
        let deadline = Instant::now() + self.options.query_timeout;
        let mut by_topic: HashMap<&str, Vec<(usize, &SearchQuery)>> = HashMap::new();
        for (index, query) in queries.iter().enumerate() {
            by_topic.entry(&query.topic).or_default().push((index, query));
        }
        let mut results = vec![SearchResult::Absent; queries.len()];
        for (topic, queries) in by_topic {
            if name::check_topic(topic).is_err() {
                continue;
            }
            for mut window in search_windows(&queries, self.options.clock_slack) {
                let searched = self.search(topic, &mut window, deadline);
                for (index, found) in window.finish(&searched) {
                    results[index] = found;
                }
            }
        }
        results
    }

    /// Scans every message of a window, in all partitions: their number may have changed since the
    /// publish.
    fn search(
        &self,
        topic: &str,
        window: &mut SearchWindow<'_>,
        deadline: Instant,
    ) -> Result<(), String> {
        let name = self.options.topic_of(topic);
        let search_error = |error: KafkaError| format!("failed to search kafka: {error}");
        let consumer = self.consumer(Isolation::All).map_err(search_error)?;
        let layout =
            layout(&consumer, &name, self.options.request_timeout).map_err(search_error)?;
        // It existed when it was published to, or a broker does not know it yet.
        let layout = layout.ok_or_else(|| format!("topic {name} does not exist"))?;
        let ranges = self.ranges(&consumer, &name, layout, window.from).map_err(search_error)?;
        let (mut read, messages_max, to) = (0, self.options.find_messages_max, window.to);
        let done = scan(&consumer, &name, &ranges, deadline, &mut |message| {
            read += 1;
            let dedupe_key = dedupe_key(message);
            window.record(dedupe_key, || reference(topic, message));
            // Timestamps set by other producers are not trusted.
            let stamped = match message.timestamp() {
                Timestamp::CreateTime(stamped) => dedupe_key.map(|_| stamped),
                Timestamp::LogAppendTime(stamped) => Some(stamped),
                Timestamp::NotAvailable => None,
            };
            match stamped {
                _ if read >= messages_max => Visit::Stop,
                Some(stamped) if stamped > to => Visit::PartitionDone,
                _ => Visit::Continue,
            }
        });
        self.put_back(Isolation::All, consumer);
        done.map_err(search_error)?;
        if read >= messages_max {
            return Err(format!(
                "search limit exceeded: more than {read} messages in that time range"
            ));
        }
        if Instant::now() >= deadline {
            return Err("timeout: the search did not complete".to_owned());
        }
        match ranges.iter().any(|range| range.may_be_incomplete) {
            true => Err("retention has removed messages of that time range from kafka".to_owned()),
            false => Ok(()),
        }
    }

    /// Offset ranges of all partitions for messages stamped at `from` or later.
    fn ranges(
        &self,
        consumer: &BaseConsumer,
        name: &str,
        layout: TopicLayout,
        from: i64,
    ) -> Result<Vec<OffsetRange>, KafkaError> {
        let wait = self.options.request_timeout;
        let first_offsets = first_offsets(consumer, name, layout, from.max(0), wait)?;
        let mut ranges = Vec::new();
        let mut all_older = Vec::new();
        for partition in 0..layout.partitions {
            let (low, high) = consumer.fetch_watermarks(name, partition, wait)?;
            let whole =
                OffsetRange { partition, first: low, last: high - 1, may_be_incomplete: low > 0 };
            match first_offsets.get(&partition) {
                _ if high <= low => {
                    // Empty; earlier messages may have been removed.
                    ranges.push(whole);
                }
                Some(first) => {
                    let may_be_incomplete = low > 0 && *first <= low;
                    ranges.push(OffsetRange { first: low.max(*first), may_be_incomplete, ..whole });
                }
                None => all_older.push(whole),
            }
        }
        if all_older.is_empty() {
            return Ok(ranges);
        }
        // For these partitions the broker reports that all messages are older. A broker without a
        // time index reports that for any time; then the partition is read completely.
        let with_time_index = self::first_offsets(consumer, name, layout, 0, wait)?;
        all_older.retain(|range| !with_time_index.contains_key(&range.partition));
        ranges.append(&mut all_older);
        Ok(ranges)
    }

    pub(super) fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> Result<Vec<StoredMessage>, BusError> {
        let from = check_read(topic, from)?;
        let consumer = self.consumer(Isolation::Committed).map_err(unavailable)?;
        let read = self.read_from(&consumer, topic, partition, from, rows_max.min(READ_ROWS_MAX));
        self.put_back(Isolation::Committed, consumer);
        read
    }

    fn read_from(
        &self,
        consumer: &BaseConsumer,
        topic: &str,
        partition: u32,
        from: i64,
        rows_max: usize,
    ) -> Result<Vec<StoredMessage>, BusError> {
        let (name, wait) = (self.options.topic_of(topic), self.options.request_timeout);
        let layout = layout(consumer, &name, wait).map_err(unavailable)?;
        let partition_id = i32::try_from(partition).ok();
        let partition_id = partition_id
            .filter(|partition_id| layout.is_some_and(|layout| *partition_id < layout.partitions));
        let Some(partition_id) = partition_id else {
            return match (layout, partition) {
                (None, 0) => Ok(Vec::new()),
                _ => Err(BusError::NoSuchPartition { topic: topic.to_owned(), partition }),
            };
        };
        let (low, high) =
            consumer.fetch_watermarks(&name, partition_id, wait).map_err(unavailable)?;
        if from > high {
            let reason = format!("it ends at {high}, before {from}: the topic was recreated");
            return Err(BusError::Damaged { place: format!("topic {name}"), reason });
        }
        let (first, last) = (from.max(low), high - 1);
        let mut records = Vec::new();
        if rows_max == 0 || first > last {
            return Ok(records);
        }
        let range = OffsetRange { partition: partition_id, first, last, may_be_incomplete: false };
        let deadline = Instant::now() + self.options.query_timeout;
        let mut bytes = 0;
        scan(consumer, &name, &[range], deadline, &mut |message| {
            let payload = message.payload().unwrap_or_default();
            bytes += payload.len();
            records.push(StoredMessage {
                reference: reference(topic, message),
                partition_key: String::from_utf8_lossy(message.key().unwrap_or_default())
                    .into_owned(),
                dedupe_key: dedupe_key(message).map(str::to_owned),
                payload: payload.to_vec().into(),
            });
            let is_enough = records.len() >= rows_max || bytes >= READ_BYTES_MAX;
            if is_enough { Visit::Stop } else { Visit::Continue }
        })
        .map_err(unavailable)?;
        if records.is_empty() && Instant::now() >= deadline {
            let reason = "timeout: no broker delivered a message".to_owned();
            return Err(BusError::Unavailable { reason, source: None });
        }
        Ok(records)
    }
}

/// Validates the arguments of a read. Returns the first offset.
fn check_read(topic: &str, from: &str) -> Result<i64, BusError> {
    name::check_topic(topic)
        .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
    if from.is_empty() {
        return Ok(0);
    }
    let offset = from.parse::<i64>().ok().filter(|offset| *offset >= 0);
    let kind = OffsetKind::KafkaOffset;
    offset.ok_or_else(|| BusError::NotAnOffset { offset: from.to_owned(), kind })
}

fn unavailable(error: KafkaError) -> BusError {
    let reason = "kafka request failed".to_owned();
    BusError::Unavailable { reason, source: Some(Box::new(error)) }
}

fn layout(
    consumer: &BaseConsumer,
    name: &str,
    wait: Duration,
) -> Result<Option<TopicLayout>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(name), wait)?;
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
        return Ok(None);
    };
    match topic.error().map(RDKafkaErrorCode::from) {
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            return Ok(None);
        }
        Some(code) => return Err(KafkaError::MetadataFetch(code)),
    }
    let partitions = topic.partitions();
    Ok(Some(TopicLayout {
        partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
        replicas: partitions.iter().map(|partition| partition.replicas().len()).min().unwrap_or(0),
        has_leaders: partitions.iter().all(|partition| partition.leader() >= 0),
    }))
}

/// First offset of each partition stamped at `from` or later, where there is one.
fn first_offsets(
    consumer: &BaseConsumer,
    name: &str,
    layout: TopicLayout,
    from: i64,
    wait: Duration,
) -> Result<HashMap<i32, i64>, KafkaError> {
    let mut times = TopicPartitionList::new();
    for partition in 0..layout.partitions {
        times.add_partition_offset(name, partition, Offset::Offset(from))?;
    }
    let offsets = consumer.offsets_for_times(times, wait)?;
    let mut first_offsets = HashMap::new();
    for element in offsets.elements() {
        element.error()?;
        if let Offset::Offset(first) = element.offset() {
            first_offsets.insert(element.partition(), first);
        }
    }
    Ok(first_offsets)
}

/// Reads offset ranges of partitions, each in order, until all are done or the deadline passes.
fn scan(
    consumer: &BaseConsumer,
    name: &str,
    ranges: &[OffsetRange],
    deadline: Instant,
    visit_message: &mut dyn FnMut(&BorrowedMessage<'_>) -> Visit,
) -> Result<(), KafkaError> {
    let mut open_ranges: HashMap<i32, i64> = HashMap::new();
    let mut assignment = TopicPartitionList::new();
    for range in ranges.iter().filter(|range| range.first <= range.last) {
        open_ranges.insert(range.partition, range.last);
        assignment.add_partition_offset(name, range.partition, Offset::Offset(range.first))?;
    }
    if open_ranges.is_empty() {
        return Ok(());
    }
    consumer.assign(&assignment)?;
    while !open_ranges.is_empty() && Instant::now() < deadline {
        let message = match consumer.poll(POLL) {
            None => continue,
            // The last offsets may hold no message, only transaction markers.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open_ranges.remove(&partition);
                continue;
            }
            Some(message) => message?,
        };
        let partition = message.partition();
        let Some(last) = open_ranges.get(&partition).copied() else { continue };
        let visit =
            if message.offset() > last { Visit::PartitionDone } else { visit_message(&message) };
        match visit {
            Visit::Stop => break,
            Visit::Continue if message.offset() < last => {}
            Visit::Continue | Visit::PartitionDone => {
                open_ranges.remove(&partition);
            }
        }
    }
    consumer.unassign()
}

fn dedupe_key<'m>(message: &'m BorrowedMessage<'_>) -> Option<&'m str> {
    let headers = message.headers()?;
    let header = headers.iter().find(|header| header.key == DEDUPE_KEY)?;
    std::str::from_utf8(header.value?).ok()
}

fn reference(topic: &str, message: &BorrowedMessage<'_>) -> Reference {
    Reference {
        topic: topic.to_owned(),
        partition: u32::try_from(message.partition()).unwrap_or(0),
        offset: message.offset().to_string(),
        offset_kind: OffsetKind::KafkaOffset,
        published_at: message.timestamp().to_millis().map(Millis),
    }
}
