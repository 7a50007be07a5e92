//! Kafka: an idempotent producer that waits for every replica in sync, and a look that never guesses.
//!
//! The partition key is the key of a message, so the library's partitioner (the one Java clients
//! use) keeps its order; the dedupe key is a header and the time of publishing is the time stamp.
//! Repeating a request is left to the library, which numbers them, so that a broker takes each once.
//! What can become of a message:
//!
//! ```text
//! it is no message, or its topic is not there              -> not written
//! the library does not take it (queue full, too large)     -> not written
//! taken, and any error after that                          -> unknown
//! acknowledged by all replicas in sync                     -> committed at its offset
//! acknowledged as a repetition, without an offset          -> unknown; a search finds it
//! ```

mod look;
mod preparations;
mod topic;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_core::Millis;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::future_producer::{Delivery, DeliveryFuture};
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord, Producer as _};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::name;
use crate::port::{
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Reference,
    Sought,
};
use look::Looker;
use preparations::Preparations;

/// Brokers without a disk, in this process and on sockets of loopback: for tests.
pub type MockCluster = rdkafka::mocking::MockCluster<'static, DefaultProducerContext>;

/// Between two attempts to reach a broker.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The header that holds the dedupe key.
const DEDUPE_KEY: &str = "dedupe_key";
/// Bytes of a request beside the payload: keys, headers and the frame.
const OVERHEAD_BYTES: usize = 4_096;

/// How a client proves who it is.
#[derive(Clone)]
pub struct Sasl {
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: String,
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sasl {} {:?}", self.mechanism, self.user)
    }
}

/// How a bus on Kafka is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT`, more of them after commas.
    pub servers: String,
    /// How we call ourselves.
    pub client_id: String,
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub security: String,
    /// How we prove who we are.
    pub sasl: Option<Sasl>,
    /// Who vouches for the brokers; a PEM file.
    pub ca: Option<PathBuf>,
    /// What comes before a topic to make the topic of the cluster.
    pub topic_prefix: String,
    /// Whether topics that are not there are made.
    pub create_topics: bool,
    /// Partitions of a topic that is made.
    pub partitions: u32,
    /// Replicas of a topic that is made.
    pub replication: u32,
    /// Messages on the way at once; further ones wait.
    pub in_flight_max: usize,
    /// How long messages are gathered before they are sent.
    pub linger: Duration,
    /// How long brokers are waited for outside of publishing.
    pub request_timeout: Duration,
    /// How far the clock of a broker, or of another gate, may be from ours.
    pub clock_slack: Duration,
    /// Messages a search reads before it says that it cannot tell.
    pub find_messages_max: u64,
    /// How long a search or a read may take.
    pub look_wait: Duration,
    /// See [`Bus::delivery_timeout`]. The library stops trying after half of it.
    pub delivery_timeout: Duration,
    /// Largest payload, in bytes.
    pub message_bytes_max: usize,
}

impl Options {
    /// The defaults, at `servers`.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            client_id: "admit".to_owned(),
            security: "plaintext".to_owned(),
            sasl: None,
            ca: None,
            topic_prefix: String::new(),
            create_topics: false,
            partitions: 6,
            replication: 3,
            in_flight_max: 10_000,
            linger: Duration::from_millis(2),
            request_timeout: Duration::from_secs(5),
            clock_slack: Duration::from_secs(60),
            find_messages_max: 2_000_000,
            look_wait: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(30),
            message_bytes_max: 1 << 20,
        }
    }

    /// The topic of the cluster.
    fn topic_of(&self, topic: &str) -> String {
        format!("{}{topic}", self.topic_prefix)
    }

    /// What every client of the library is told.
    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", &self.client_id)
            .set("security.protocol", &self.security)
            .set("allow.auto.create.topics", "false")
            .set("reconnect.backoff.max.ms", self.reconnect_pause().as_millis().to_string());
        if let Some(sasl) = &self.sasl {
            config
                .set("sasl.mechanism", &sasl.mechanism)
                .set("sasl.username", &sasl.user)
                .set("sasl.password", &sasl.password);
        }
        if let Some(ca) = &self.ca {
            config.set("ssl.ca.location", ca.to_string_lossy());
        }
        config
    }

    /// The longest pause between two attempts to reach a broker. Shorter than the time a message has,
    /// so that one that is sent right after an outage gets through.
    fn reconnect_pause(&self) -> Duration {
        (self.delivery_timeout / 8).clamp(RECONNECT_PAUSE_MIN, RECONNECT_PAUSE_MAX)
    }

    fn producer(&self) -> Result<FutureProducer, KafkaError> {
        // An attempt that the library has given up may still be with a broker: half of the time is
        // left for that.
        let timeout = (self.delivery_timeout / 2).max(Duration::from_millis(10));
        let millis = |time: Duration| time.as_millis().to_string();
        self.client()
            .remove("allow.auto.create.topics")
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("partitioner", "murmur2_random")
            .set("message.timeout.ms", millis(timeout))
            .set("request.timeout.ms", millis(timeout))
            .set("linger.ms", millis(self.linger))
            .set("message.max.bytes", (self.message_bytes_max + OVERHEAD_BYTES).to_string())
            .set("queue.buffering.max.messages", self.in_flight_max.max(1).to_string())
            .create()
    }
}

/// Why a bus on Kafka could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library does not take the settings.
    #[error("kafka cannot be spoken to with these settings")]
    Settings(#[source] KafkaError),
    /// A topic that cannot be published to, or no broker that could be asked.
    #[error("topic {topic} cannot be published: {reason}")]
    Topic {
        /// Which.
        topic: String,
        /// Why not.
        reason: String,
    },
}

/// A bus on Kafka.
pub struct KafkaBus {
    options: Options,
    /// Replaced when the library says that it cannot go on.
    producer: Mutex<Arc<FutureProducer>>,
    looker: Arc<Looker>,
    room: Semaphore,
    preparations: Preparations,
}

impl fmt::Debug for KafkaBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaBus").field("options", &self.options).finish_non_exhaustive()
    }
}

impl KafkaBus {
    /// Connects, and checks the topics, or makes them where that is wanted.
    ///
    /// # Errors
    /// When the library does not take the settings, no broker answers, or a topic cannot be used.
    pub async fn open(options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let producer = options.producer().map_err(OpenError::Settings)?;
        let looker = Looker::new(&options).map_err(OpenError::Settings)?;
        let bus = Self {
            room: Semaphore::new(options.in_flight_max.max(1)),
            producer: Mutex::new(Arc::new(producer)),
            looker: Arc::new(looker),
            preparations: Preparations::default(),
            options,
        };
        for topic in topics {
            let refused = |reason: String| OpenError::Topic { topic: topic.clone(), reason };
            name::check_topic(topic).map_err(|reason| refused(reason.to_owned()))?;
            bus.prepare(topic).await.map_err(refused)?;
        }
        Ok(bus)
    }

    async fn prepare(&self, topic: &str) -> Result<(), String> {
        let look = || -> BoxFuture<'static, _> {
            let (looker, options) = (Arc::clone(&self.looker), self.options.clone());
            let topic = topic.to_owned();
            Box::pin(async move { topic::prepare(&looker, &options, &topic).await })
        };
        self.preparations.of(topic, look).await
    }

    /// The producer; a new one where the last cannot go on.
    fn producer(&self) -> Result<Arc<FutureProducer>, String> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, reason)) = producer.client().fatal_error() {
            tracing::error!(%code, reason, "the kafka producer cannot go on, a new one is made");
            let new = self.options.producer();
            *producer = Arc::new(new.map_err(|error| format!("no new producer: {error}"))?);
        }
        Ok(Arc::clone(&producer))
    }

    /// Why a message is not sent, if that is so.
    async fn refusal(
        &self,
        message: &Message,
        refused: &mut HashMap<String, String>,
    ) -> Option<String> {
        let checked = name::check_topic(&message.topic)
            .and_then(|()| name::check_partition_key(&message.partition_key))
            .and_then(|()| name::check_dedupe_key(&message.dedupe_key));
        if let Err(reason) = checked {
            return Some(reason.to_owned());
        }
        if message.payload.len() > self.options.message_bytes_max {
            return Some(format!("it has more than {} bytes", self.options.message_bytes_max));
        }
        let topic: &str = &message.topic;
        if !self.preparations.has(topic)
            && !refused.contains_key(topic)
            && let Err(reason) = self.prepare(topic).await
        {
            refused.insert(topic.to_owned(), reason);
        }
        refused.get(topic).cloned()
    }

    /// Hands a message to the library, which copies it.
    fn hand_over(
        &self,
        producer: &FutureProducer,
        message: &Message,
    ) -> Result<DeliveryFuture, KafkaError> {
        let topic = self.options.topic_of(&message.topic);
        let header = Header { key: DEDUPE_KEY, value: Some(&message.dedupe_key) };
        let record = FutureRecord::to(&topic)
            .key(&message.partition_key)
            .payload(message.payload.as_ref())
            .headers(OwnedHeaders::new_with_capacity(1).insert(header))
            .timestamp(message.at.0);
        producer.send_result(record).map_err(|(error, _)| error)
    }

    async fn publish_all(&self, batch: Vec<Message>) -> Vec<Published> {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(reason) => return vec![Published::NotWritten { reason }; batch.len()],
        };
        let mut answers = Vec::with_capacity(batch.len());
        let mut refused = HashMap::new();
        let mut on_the_way = FuturesUnordered::new();
        let mut is_broken: Option<String> = None;
        for (place, message) in batch.into_iter().enumerate() {
            answers.push(Published::NotWritten { reason: String::new() });
            let refusal = self.refusal(&message, &mut refused).await;
            if let Some(reason) = refusal.or_else(|| is_broken.clone()) {
                answers[place] = Published::NotWritten { reason };
                continue;
            }
            // Whoever waits for room must hear the answers that make it.
            let room = loop {
                tokio::select! {
                    biased;
                    room = self.room.acquire() => break room,
                    Some((place, answer)) = on_the_way.next() => answers[place] = answer,
                }
            };
            match self.hand_over(&producer, &message) {
                Ok(delivery) => on_the_way.push(async move {
                    let answer = answer(delivery.await, &message.topic, message.at);
                    drop(room);
                    (place, answer)
                }),
                Err(error) => {
                    let reason = format!("not handed over to kafka: {error}");
                    // What comes later must not overtake it.
                    if error.rdkafka_error_code() != Some(RDKafkaErrorCode::MessageSizeTooLarge) {
                        is_broken = Some(format!("an earlier message was {reason}"));
                    }
                    answers[place] = Published::NotWritten { reason };
                }
            }
        }
        while let Some((place, answer)) = on_the_way.next().await {
            answers[place] = answer;
        }
        answers
    }
}

/// What an answer of the library means.
fn answer<M, C>(
    delivered: Result<Result<Delivery, (KafkaError, M)>, C>,
    topic: &str,
    at: Millis,
) -> Published {
    let unknown = |reason: String| Published::Unknown { reason };
    match delivered {
        Ok(Ok(delivery)) => {
            let partition = u32::try_from(delivery.partition);
            match (partition, u64::try_from(delivery.offset)) {
                (Ok(partition), Ok(offset)) => Published::Committed(Reference {
                    topic: topic.to_owned(),
                    partition,
                    offset: offset.to_string(),
                    offset_kind: OffsetKind::KafkaOffset,
                    published_at: Some(at),
                }),
                _ => unknown(
                    "kafka has it from an earlier request and does not say where".to_owned(),
                ),
            }
        }
        Ok(Err((error, _))) => unknown(format!("kafka did not acknowledge it: {error}")),
        Err(_) => unknown("the kafka producer ended before it answered".to_owned()),
    }
}

impl Bus for KafkaBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>> {
        Box::pin(self.publish_all(batch))
    }

    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>> {
        let looker = Arc::clone(&self.looker);
        Box::pin(async move {
            if sought.is_empty() {
                return Vec::new();
            }
            let asked = sought.len();
            let search = spawn_blocking(move || looker.find(&sought));
            search.await.unwrap_or_else(|_| {
                let reason = "the search was cut short".to_owned();
                vec![Found::CannotTell { reason }; asked]
            })
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        let looker = Arc::clone(&self.looker);
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move {
            let read = spawn_blocking(move || looker.read(&topic, partition, &from, rows_max));
            let cut = |_| BusError::Unavailable {
                reason: "the read was cut short".to_owned(),
                source: None,
            };
            read.await.map_err(cut)?
        })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let looker = Arc::clone(&self.looker);
        let topics = topics.to_vec();
        Box::pin(async move {
            let probed = spawn_blocking(move || looker.health(&topics));
            probed.await.unwrap_or_else(|_| BusHealth::Unknown {
                reason: "the probe was cut short".to_owned(),
            })
        })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::KafkaOffset
    }

    fn delivery_timeout(&self) -> Duration {
        self.options.delivery_timeout
    }
}
