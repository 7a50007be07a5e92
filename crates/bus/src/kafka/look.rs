//! Looking: searches by time stamp and reads by offset. Everything here blocks, on threads for that.

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
use crate::port::{BusError, BusHealth, Found, OffsetKind, Record, Reference, Sought};
use crate::window::{Window, windows};

/// Most messages that one read returns, whatever it is asked for.
const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a read returns what it has.
const READ_BYTES_MAX: usize = 16 << 20;
/// Consumers of each kind that are kept for the next look.
const IDLE_MAX: usize = 2;
/// How long a consumer waits for a message before it looks at the clock.
const POLL: Duration = Duration::from_millis(100);

/// How a topic is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// How many partitions it has.
    pub(super) partitions: i32,
    /// How many brokers keep the partition that fewest keep.
    pub(super) replicas: usize,
    /// Whether every partition has a broker that takes messages.
    pub(super) is_led: bool,
}

/// Which messages a consumer is given, where somebody publishes in transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// Those of transactions that were committed, and only up to the first that is still open: for
    /// readers.
    Committed,
    /// All of them. Ours are in no transaction, and one of somebody else must not hide them.
    All,
}

/// Looks at a cluster, with consumers that belong to no group and commit nothing.
pub(super) struct Looker {
    options: Options,
    idle: Mutex<Vec<(Given, BaseConsumer)>>,
    /// Whether the brokers did not tell the settings of a topic when they were asked.
    pub(super) is_silent: AtomicBool,
}

/// What is to be read of one partition, both ends included.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    partition: i32,
    first: i64,
    last: i64,
    /// Whether older messages of it may have been let go.
    is_cut: bool,
}

/// Whether to go on.
enum Go {
    On,
    /// This partition has nothing more to give.
    Over,
    /// Nor has any other.
    Stop,
}

impl Looker {
    pub(super) fn new(options: &Options) -> Result<Self, KafkaError> {
        let (idle, is_silent) = (Mutex::default(), AtomicBool::new(false));
        let looker = Self { options: options.clone(), idle, is_silent };
        let first = looker.consumer(Given::All)?;
        looker.put_back(Given::All, first);
        Ok(looker)
    }

    fn consumer(&self, given: Given) -> Result<BaseConsumer, KafkaError> {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let place = idle.iter().position(|(kind, _)| *kind == given);
            place.map(|place| idle.swap_remove(place))
        };
        if let Some((_, consumer)) = idle {
            return Ok(consumer);
        }
        let isolation = match given {
            Given::Committed => "read_committed",
            Given::All => "read_uncommitted",
        };
        self.options
            .client()
            .set("group.id", "admit-look")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("isolation.level", isolation)
            .set("fetch.wait.max.ms", "50")
            .set("fetch.error.backoff.ms", "50")
            .set("topic.metadata.refresh.fast.interval.ms", "50")
            .create()
    }

    fn put_back(&self, given: Given, consumer: BaseConsumer) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = idle.iter().filter(|(kind, _)| *kind == given).count();
        if alike < IDLE_MAX && consumer.unassign().is_ok() {
            idle.push((given, consumer));
        }
    }

    /// How a topic of the cluster is laid out; `None` if it is not there.
    pub(super) fn shape(&self, name: &str) -> Result<Option<Shape>, String> {
        let consumer = self.consumer(Given::All).map_err(|error| error.to_string())?;
        let shape = shape(&consumer, name, self.options.request_timeout);
        self.put_back(Given::All, consumer);
        shape.map_err(|error| self.unanswered(name, &error))
    }

    /// Why nothing is known of a topic, and where to look.
    fn unanswered(&self, name: &str, error: &KafkaError) -> String {
        use RDKafkaErrorCode as Code;
        match error.rdkafka_error_code() {
            Some(
                Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::Resolve,
            ) => format!(
                "no kafka broker answers at {}: {error}; check bus.url, and that the brokers \
                 advertise addresses that can be reached from here",
                self.options.servers
            ),
            _ => format!("kafka cannot be asked about {name}: {error}"),
        }
    }

    pub(super) fn health(&self, topics: &[String]) -> BusHealth {
        if topics.is_empty() {
            let consumer = match self.consumer(Given::All) {
                Ok(consumer) => consumer,
                Err(error) => return BusHealth::Unknown { reason: error.to_string() },
            };
            let asked = consumer.fetch_metadata(None, self.options.request_timeout);
            let health = match asked {
                Ok(_) => BusHealth::Up,
                Err(error) => BusHealth::Down { reason: format!("no broker answers: {error}") },
            };
            self.put_back(Given::All, consumer);
            return health;
        }
        for topic in topics {
            if let Err(reason) = name::check_topic(topic) {
                return BusHealth::Down { reason: format!("{topic:?} is no topic: {reason}") };
            }
            let name = self.options.topic_of(topic);
            let reason = match self.shape(&name) {
                Ok(Some(shape)) if shape.is_led => continue,
                Ok(Some(_)) => format!("a partition of {name} has no leader"),
                Ok(None) => format!("the topic {name} is not there"),
                Err(reason) => reason,
            };
            return BusHealth::Down { reason };
        }
        BusHealth::Up
    }

    pub(super) fn find(&self, sought: &[Sought]) -> Vec<Found> {
        let until = Instant::now() + self.options.look_wait;
        let mut by_topic: HashMap<&str, Vec<(usize, &Sought)>> = HashMap::new();
        for (place, one) in sought.iter().enumerate() {
            by_topic.entry(&one.topic).or_default().push((place, one));
        }
        let mut answers = vec![Found::Absent; sought.len()];
        for (topic, sought) in by_topic {
            if name::check_topic(topic).is_err() {
                continue;
            }
            for mut window in windows(&sought, self.options.clock_slack) {
                let searched = self.search(topic, &mut window, until);
                for (place, found) in window.end(&searched) {
                    answers[place] = found;
                }
            }
        }
        answers
    }

    /// Reads every message of a range, in all partitions: their number may have changed since.
    fn search(&self, topic: &str, window: &mut Window<'_>, until: Instant) -> Result<(), String> {
        let name = self.options.topic_of(topic);
        let told = |error: KafkaError| format!("kafka cannot be searched: {error}");
        let consumer = self.consumer(Given::All).map_err(told)?;
        let shape = shape(&consumer, &name, self.options.request_timeout).map_err(told)?;
        // It was there when it was published to, or a broker does not know it yet.
        let shape = shape.ok_or_else(|| format!("the topic {name} is not there"))?;
        let stretches = self.stretches(&consumer, &name, shape, window.from).map_err(told)?;
        let (mut read, messages_max, to) = (0, self.options.find_messages_max, window.to);
        let done = walk(&consumer, &name, &stretches, until, &mut |message| {
            read += 1;
            let dedupe_key = dedupe_key(message);
            window.see(dedupe_key, || reference(topic, message));
            // Strangers stamp what they publish as they like.
            let stamped = match message.timestamp() {
                Timestamp::CreateTime(stamped) => dedupe_key.map(|_| stamped),
                Timestamp::LogAppendTime(stamped) => Some(stamped),
                Timestamp::NotAvailable => None,
            };
            match stamped {
                _ if read >= messages_max => Go::Stop,
                Some(stamped) if stamped > to => Go::Over,
                _ => Go::On,
            }
        });
        self.put_back(Given::All, consumer);
        done.map_err(told)?;
        if read >= messages_max {
            return Err(format!("more than {read} messages were published in that time"));
        }
        if Instant::now() >= until {
            return Err("the search did not end in time".to_owned());
        }
        match stretches.iter().any(|stretch| stretch.is_cut) {
            true => Err("kafka has let go of messages of that time".to_owned()),
            false => Ok(()),
        }
    }

    /// What to read of each partition for messages stamped at `from` or later.
    fn stretches(
        &self,
        consumer: &BaseConsumer,
        name: &str,
        shape: Shape,
        from: i64,
    ) -> Result<Vec<Stretch>, KafkaError> {
        let wait = self.options.request_timeout;
        let begins = begins(consumer, name, shape, from.max(0), wait)?;
        let mut stretches = Vec::new();
        let mut after_all = Vec::new();
        for partition in 0..shape.partitions {
            let (low, high) = consumer.fetch_watermarks(name, partition, wait)?;
            let whole = Stretch { partition, first: low, last: high - 1, is_cut: low > 0 };
            match begins.get(&partition) {
                _ if high <= low => {
                    // Nothing is there; what was may be gone.
                    stretches.push(whole);
                }
                Some(first) => {
                    let is_cut = low > 0 && *first <= low;
                    stretches.push(Stretch { first: low.max(*first), is_cut, ..whole });
                }
                None => after_all.push(whole),
            }
        }
        if after_all.is_empty() {
            return Ok(stretches);
        }
        // Of these the broker says that all messages are older. One that cannot tell times says so
        // of any time, and then they are read whole.
        let tellable = self::begins(consumer, name, shape, 0, wait)?;
        after_all.retain(|stretch| !tellable.contains_key(&stretch.partition));
        stretches.append(&mut after_all);
        Ok(stretches)
    }

    pub(super) fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> Result<Vec<Record>, BusError> {
        let from = check_read(topic, from)?;
        let consumer = self.consumer(Given::Committed).map_err(unavailable)?;
        let read = self.read_from(&consumer, topic, partition, from, rows_max.min(READ_ROWS_MAX));
        self.put_back(Given::Committed, consumer);
        read
    }

    fn read_from(
        &self,
        consumer: &BaseConsumer,
        topic: &str,
        partition: u32,
        from: i64,
        rows_max: usize,
    ) -> Result<Vec<Record>, BusError> {
        let (name, wait) = (self.options.topic_of(topic), self.options.request_timeout);
        let shape = shape(consumer, &name, wait).map_err(unavailable)?;
        let wanted = i32::try_from(partition).ok();
        let wanted = wanted.filter(|wanted| shape.is_some_and(|shape| *wanted < shape.partitions));
        let Some(wanted) = wanted else {
            return match (shape, partition) {
                (None, 0) => Ok(Vec::new()),
                _ => Err(BusError::NoSuchPartition { topic: topic.to_owned(), partition }),
            };
        };
        let (low, high) = consumer.fetch_watermarks(&name, wanted, wait).map_err(unavailable)?;
        if from > high {
            let reason = format!(
                "it ends at {high}, before {from}: it is not the topic that was read before"
            );
            return Err(BusError::Damaged { place: format!("the topic {name}"), reason });
        }
        let (first, last) = (from.max(low), high - 1);
        let mut records = Vec::new();
        if rows_max == 0 || first > last {
            return Ok(records);
        }
        let stretch = Stretch { partition: wanted, first, last, is_cut: false };
        let until = Instant::now() + self.options.look_wait;
        let mut bytes = 0;
        walk(consumer, &name, &[stretch], until, &mut |message| {
            let payload = message.payload().unwrap_or_default();
            bytes += payload.len();
            records.push(Record {
                reference: reference(topic, message),
                partition_key: String::from_utf8_lossy(message.key().unwrap_or_default())
                    .into_owned(),
                dedupe_key: dedupe_key(message).map(str::to_owned),
                payload: payload.to_vec().into(),
            });
            let is_enough = records.len() >= rows_max || bytes >= READ_BYTES_MAX;
            if is_enough { Go::Stop } else { Go::On }
        })
        .map_err(unavailable)?;
        if records.is_empty() && Instant::now() >= until {
            let reason = "no broker sent anything in time".to_owned();
            return Err(BusError::Unavailable { reason, source: None });
        }
        Ok(records)
    }
}

/// Checks what a reader asks for, and gives the offset to begin at.
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
    let reason = "kafka does not answer as it should".to_owned();
    BusError::Unavailable { reason, source: Some(Box::new(error)) }
}

fn shape(consumer: &BaseConsumer, name: &str, wait: Duration) -> Result<Option<Shape>, KafkaError> {
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
    Ok(Some(Shape {
        partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
        replicas: partitions.iter().map(|one| one.replicas().len()).min().unwrap_or(0),
        is_led: partitions.iter().all(|one| one.leader() >= 0),
    }))
}

/// The first offset of each partition that was stamped at `from` or later, where there is one.
fn begins(
    consumer: &BaseConsumer,
    name: &str,
    shape: Shape,
    from: i64,
    wait: Duration,
) -> Result<HashMap<i32, i64>, KafkaError> {
    let mut times = TopicPartitionList::new();
    for partition in 0..shape.partitions {
        times.add_partition_offset(name, partition, Offset::Offset(from))?;
    }
    let told = consumer.offsets_for_times(times, wait)?;
    let mut begins = HashMap::new();
    for one in told.elements() {
        one.error()?;
        if let Offset::Offset(first) = one.offset() {
            begins.insert(one.partition(), first);
        }
    }
    Ok(begins)
}

/// Reads stretches of partitions, in the order of each, until all are read or time is up.
fn walk(
    consumer: &BaseConsumer,
    name: &str,
    stretches: &[Stretch],
    until: Instant,
    see: &mut dyn FnMut(&BorrowedMessage<'_>) -> Go,
) -> Result<(), KafkaError> {
    let mut open: HashMap<i32, i64> = HashMap::new();
    let mut assignment = TopicPartitionList::new();
    for stretch in stretches.iter().filter(|stretch| stretch.first <= stretch.last) {
        open.insert(stretch.partition, stretch.last);
        assignment.add_partition_offset(name, stretch.partition, Offset::Offset(stretch.first))?;
    }
    if open.is_empty() {
        return Ok(());
    }
    consumer.assign(&assignment)?;
    while !open.is_empty() && Instant::now() < until {
        let message = match consumer.poll(POLL) {
            None => continue,
            // The last offsets may hold no message: what transactions of others left.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
                continue;
            }
            Some(message) => message?,
        };
        let partition = message.partition();
        let Some(last) = open.get(&partition).copied() else { continue };
        let go = if message.offset() > last { Go::Over } else { see(&message) };
        match go {
            Go::Stop => break,
            Go::On if message.offset() < last => {}
            Go::On | Go::Over => {
                open.remove(&partition);
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
