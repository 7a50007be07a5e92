//! Kafka: an idempotent producer with `acks=all`, and searches that never guess.
//!
//! The partition key is the message key, so the library's partitioner (the one Java clients use)
//! preserves its order; the dedupe key is a header and the time of publishing is the timestamp.
//! Retries are left to the library, which numbers requests so that a broker stores each once.
//! Outcomes of a message:
//!
//! ```text
//! invalid message, or its topic does not exist             -> not written
//! rejected by the library (queue full, too large)          -> not written
//! queued, and any error after that                         -> unknown
//! acknowledged by all replicas in sync                     -> committed at its offset
//! acknowledged as a duplicate request, without an offset   -> unknown; a search finds it
//! ```

mod metadata_check;
mod query;
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
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, Reference,
    SearchQuery, SearchResult, StoredMessage,
};
use metadata_check::TopicChecks;
use query::QueryClient;

/// Mock brokers without a disk, in this process on loopback sockets; for tests.
pub type MockCluster = rdkafka::mocking::MockCluster<'static, DefaultProducerContext>;

/// Backoff between two attempts to reach a broker.
const RECONNECT_BACKOFF_MIN: Duration = Duration::from_millis(100);
const RECONNECT_BACKOFF_MAX: Duration = Duration::from_secs(2);

/// The header that holds the dedupe key.
const DEDUPE_KEY: &str = "dedupe_key";
/// Bytes of a request in addition to the payload: keys, headers and the frame.
const REQUEST_OVERHEAD_BYTES: usize = 4_096;

/// SASL credentials.
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

/// Options of a Kafka bus.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT`, comma-separated.
    pub servers: String,
    /// Client id.
    pub client_id: String,
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub security: String,
    /// SASL credentials, if required.
    pub sasl: Option<Sasl>,
    /// CA certificate of the brokers; a PEM file.
    pub ca: Option<PathBuf>,
    /// Prefix of topic names in the cluster.
    pub topic_prefix: String,
    /// Whether missing topics are created.
    pub create_topics: bool,
    /// Partitions of created topics.
    pub partitions: u32,
    /// Replicas of created topics.
    pub replication: u32,
    /// Maximum unacknowledged messages; further ones wait.
    pub in_flight_max: usize,
    /// Batching window before messages are sent.
    pub linger: Duration,
    /// Timeout of requests other than publishing.
    pub request_timeout: Duration,
    /// Maximum difference between our clock and that of a broker or another gate.
    pub clock_slack: Duration,
    /// Messages a search reads before it gives up with [`SearchResult::Unknown`].
    pub find_messages_max: u64,
    /// Timeout of a search or read.
    pub query_timeout: Duration,
    /// See [`Bus::delivery_timeout`]. The library stops retrying after half of it.
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
            query_timeout: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(30),
            message_bytes_max: 1 << 20,
        }
    }

    /// The topic's name in the cluster.
    fn topic_of(&self, topic: &str) -> String {
        format!("{}{topic}", self.topic_prefix)
    }

    /// Settings common to all clients.
    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", &self.client_id)
            .set("security.protocol", &self.security)
            .set("allow.auto.create.topics", "false")
            .set("reconnect.backoff.max.ms", self.reconnect_backoff().as_millis().to_string());
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

    /// Maximum reconnect backoff. Shorter than the timeout of a message, so that a message sent
    /// right after an outage gets through.
    fn reconnect_backoff(&self) -> Duration {
        (self.delivery_timeout / 8).clamp(RECONNECT_BACKOFF_MIN, RECONNECT_BACKOFF_MAX)
    }

    fn producer(&self) -> Result<FutureProducer, KafkaError> {
        // A request that the library has timed out may still reach a broker: the other half of the
        // delivery timeout is left for that.
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
            .set("message.max.bytes", (self.message_bytes_max + REQUEST_OVERHEAD_BYTES).to_string())
            .set("queue.buffering.max.messages", self.in_flight_max.max(1).to_string())
            .create()
    }
}

/// Error of opening a Kafka bus.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library rejects the settings.
    #[error("invalid kafka settings")]
    Settings(#[source] KafkaError),
    /// A topic cannot be published to, or no broker responded.
    #[error("topic {topic} cannot be published: {reason}")]
    Topic {
        /// The topic.
        topic: String,
        /// The reason.
        reason: String,
    },
}

/// Bus on Kafka.
pub struct KafkaBus {
    options: Options,
    /// Replaced after a fatal error of the library.
    producer: Mutex<Arc<FutureProducer>>,
    query_client: Arc<QueryClient>,
    capacity: Semaphore,
    topic_checks: TopicChecks,
}

impl fmt::Debug for KafkaBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaBus").field("options", &self.options).finish_non_exhaustive()
    }
}

impl KafkaBus {
    /// Connects, and checks the topics or creates them if configured.
    ///
    /// # Errors
    /// When the library rejects the settings, no broker responds, or a topic cannot be used.
    pub async fn open(options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let producer = options.producer().map_err(OpenError::Settings)?;
        let query_client = QueryClient::new(&options).map_err(OpenError::Settings)?;
        let bus = Self {
            capacity: Semaphore::new(options.in_flight_max.max(1)),
            producer: Mutex::new(Arc::new(producer)),
            query_client: Arc::new(query_client),
            topic_checks: TopicChecks::default(),
            options,
        };
        for topic in topics {
            let topic_error = |reason: String| OpenError::Topic { topic: topic.clone(), reason };
            name::check_topic(topic).map_err(|reason| topic_error(reason.to_owned()))?;
            bus.prepare(topic).await.map_err(topic_error)?;
        }
        Ok(bus)
    }

    async fn prepare(&self, topic: &str) -> Result<(), String> {
        let check = || -> BoxFuture<'static, _> {
            let (query_client, options) = (Arc::clone(&self.query_client), self.options.clone());
            let topic = topic.to_owned();
            Box::pin(async move { topic::prepare(&query_client, &options, &topic).await })
        };
        self.topic_checks.wait(topic, check).await
    }

    /// The producer, replaced by a new one after a fatal error.
    fn producer(&self) -> Result<Arc<FutureProducer>, String> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, reason)) = producer.client().fatal_error() {
            tracing::error!(%code, reason, "fatal error of the kafka producer; creating a new producer");
            let new = self.options.producer();
            *producer =
                Arc::new(new.map_err(|error| format!("failed to create a new producer: {error}"))?);
        }
        Ok(Arc::clone(&producer))
    }

    /// Reason why a message is not sent, if any.
    async fn rejection(
        &self,
        message: &Message,
        topic_errors: &mut HashMap<String, String>,
    ) -> Option<String> {
        let checked = name::check_topic(&message.topic)
            .and_then(|()| name::check_partition_key(&message.partition_key))
            .and_then(|()| name::check_dedupe_key(&message.dedupe_key));
        if let Err(reason) = checked {
            return Some(reason.to_owned());
        }
        if message.payload.len() > self.options.message_bytes_max {
            return Some(format!(
                "the payload has more than {} bytes",
                self.options.message_bytes_max
            ));
        }
        let topic: &str = &message.topic;
        if !self.topic_checks.is_usable(topic)
            && !topic_errors.contains_key(topic)
            && let Err(reason) = self.prepare(topic).await
        {
            topic_errors.insert(topic.to_owned(), reason);
        }
        topic_errors.get(topic).cloned()
    }

    /// Queues a message in the library, which copies it.
    fn enqueue(
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

    async fn publish_all(&self, batch: Vec<Message>) -> Vec<PublishOutcome> {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(reason) => return vec![PublishOutcome::NotWritten { reason }; batch.len()],
        };
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut topic_errors = HashMap::new();
        let mut in_flight = FuturesUnordered::new();
        let mut broken: Option<String> = None;
        for (index, message) in batch.into_iter().enumerate() {
            outcomes.push(PublishOutcome::NotWritten { reason: String::new() });
            let rejection = self.rejection(&message, &mut topic_errors).await;
            if let Some(reason) = rejection.or_else(|| broken.clone()) {
                outcomes[index] = PublishOutcome::NotWritten { reason };
                continue;
            }
            // While waiting for capacity, acknowledgements must be processed: they free it.
            let capacity = loop {
                tokio::select! {
                    biased;
                    capacity = self.capacity.acquire() => break capacity,
                    Some((index, outcome)) = in_flight.next() => outcomes[index] = outcome,
                }
            };
            match self.enqueue(&producer, &message) {
                Ok(delivery) => in_flight.push(async move {
                    let outcome = outcome(delivery.await, &message.topic, message.at);
                    drop(capacity);
                    (index, outcome)
                }),
                Err(error) => {
                    let reason = format!("not queued for kafka: {error}");
                    // Later messages must not overtake it.
                    if error.rdkafka_error_code() != Some(RDKafkaErrorCode::MessageSizeTooLarge) {
                        broken = Some(format!("an earlier message was {reason}"));
                    }
                    outcomes[index] = PublishOutcome::NotWritten { reason };
                }
            }
        }
        while let Some((index, outcome)) = in_flight.next().await {
            outcomes[index] = outcome;
        }
        outcomes
    }
}

/// Classifies a delivery report.
fn outcome<M, C>(
    delivered: Result<Result<Delivery, (KafkaError, M)>, C>,
    topic: &str,
    at: Millis,
) -> PublishOutcome {
    let unknown = |reason: String| PublishOutcome::Unknown { reason };
    match delivered {
        Ok(Ok(delivery)) => {
            let partition = u32::try_from(delivery.partition);
            match (partition, u64::try_from(delivery.offset)) {
                (Ok(partition), Ok(offset)) => PublishOutcome::Committed(Reference {
                    topic: topic.to_owned(),
                    partition,
                    offset: offset.to_string(),
                    offset_kind: OffsetKind::KafkaOffset,
                    published_at: Some(at),
                }),
                _ => unknown("kafka acknowledged an earlier request without an offset".to_owned()),
            }
        }
        Ok(Err((error, _))) => unknown(format!("not acknowledged by kafka: {error}")),
        Err(_) => unknown("the kafka producer ended before the acknowledgement".to_owned()),
    }
}

impl Bus for KafkaBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        Box::pin(self.publish_all(batch))
    }

    fn find(&self, queries: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        let query_client = Arc::clone(&self.query_client);
        Box::pin(async move {
            if queries.is_empty() {
                return Vec::new();
            }
            let query_count = queries.len();
            let search = spawn_blocking(move || query_client.find(&queries));
            search.await.unwrap_or_else(|_| {
                let reason = "the search was interrupted".to_owned();
                vec![SearchResult::Unknown { reason }; query_count]
            })
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let query_client = Arc::clone(&self.query_client);
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move {
            let read =
                spawn_blocking(move || query_client.read(&topic, partition, &from, rows_max));
            let interrupted = |_| BusError::Unavailable {
                reason: "the read was interrupted".to_owned(),
                source: None,
            };
            read.await.map_err(interrupted)?
        })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let query_client = Arc::clone(&self.query_client);
        let topics = topics.to_vec();
        Box::pin(async move {
            let probed = spawn_blocking(move || query_client.health(&topics));
            probed.await.unwrap_or_else(|_| BusHealth::Unknown {
                reason: "the probe was interrupted".to_owned(),
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
