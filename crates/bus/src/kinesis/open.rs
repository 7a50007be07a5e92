//! Opening a Kinesis bus: a client without retries, and checks of the streams.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Clock;
use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{Credentials, Region};
use aws_sdk_kinesis::types::{StreamMode, StreamModeDetails, StreamStatus};
use tokio::time::{Instant, sleep};

use super::classify_result::{error_text, is_absent};
use super::frame;

/// Time limit for a created stream to become active.
const CREATE_TIMEOUT: Duration = Duration::from_secs(120);
/// Poll interval while waiting for a created stream.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum connect timeout.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Options of a Kinesis bus.
#[derive(Clone)]
pub struct Options {
    /// The region; `None` uses that of the environment, profile or machine.
    pub region: Option<String>,
    /// Endpoint of the service, if not AWS.
    pub endpoint: Option<String>,
    /// Access keys, instead of the default credentials chain.
    pub keys: Option<KinesisKeys>,
    /// Prefix of stream names; the topic follows.
    pub stream_prefix: String,
    /// Stream names of individual topics.
    pub streams: BTreeMap<String, String>,
    /// Whether missing streams are created.
    pub create_streams: bool,
    /// Shards of created streams; 0 selects on-demand capacity.
    pub shards: u32,
    /// Maximum size of a payload with its keys, in bytes.
    pub message_bytes_max: usize,
    /// Maximum messages queued or in flight. Further calls wait for capacity.
    pub in_flight_max: usize,
    /// Maximum concurrent requests per stream.
    pub requests_max: usize,
    /// Request timeout; after it the outcome is unknown.
    pub request_timeout: Duration,
    /// See [`Bus::delivery_timeout`](crate::Bus::delivery_timeout).
    pub delivery_timeout: Duration,
    /// Maximum difference between the clock of Kinesis and ours; search ranges are widened by it.
    pub clock_slack: Duration,
    /// Timeout of a search or read.
    pub query_timeout: Duration,
    /// Records of one shard a search reads before it gives up with
    /// [`SearchResult::Unknown`](crate::SearchResult::Unknown).
    pub find_records_max: u64,
    /// Clock for the retention check.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// The defaults.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            region: None,
            endpoint: None,
            keys: None,
            stream_prefix: String::new(),
            streams: BTreeMap::new(),
            create_streams: false,
            shards: 1,
            message_bytes_max: 1 << 20,
            in_flight_max: 4_096,
            requests_max: 8,
            request_timeout: Duration::from_secs(5),
            delivery_timeout: Duration::from_secs(30),
            clock_slack: Duration::from_secs(60),
            query_timeout: Duration::from_secs(60),
            find_records_max: 2_000_000,
            clock,
        }
    }

    /// The stream of a topic.
    pub fn stream(&self, topic: &str) -> String {
        match self.streams.get(topic) {
            Some(stream) => stream.clone(),
            None => frame::stream(&self.stream_prefix, topic),
        }
    }
}

/// An access key and its secret, which is never logged.
#[derive(Clone)]
pub struct KinesisKeys {
    id: String,
    secret: String,
}

impl KinesisKeys {
    /// A key and its secret.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { id: id.into(), secret: secret.into() }
    }
}

impl fmt::Debug for KinesisKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Error of opening a Kinesis bus.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Two topics share a stream. Records do not contain their topic, so each stream belongs to one
    /// topic.
    #[error(
        "topics {one} and {other} share the stream {stream}; set another stream for one of them in bus.kinesis.streams"
    )]
    SharedStream {
        /// A topic.
        one: String,
        /// Another.
        other: String,
        /// Their stream.
        stream: String,
    },
    /// A stream does not exist, and creating streams is disabled.
    #[error(
        "stream {stream} for the topic {topic} does not exist; create it, or set bus.kinesis.create_streams"
    )]
    NoStream {
        /// The stream.
        stream: String,
        /// Its topic.
        topic: String,
    },
    /// A stream cannot be described or created.
    #[error("stream {stream} cannot be {doing}: {reason}")]
    Stream {
        /// The stream.
        stream: String,
        /// The failed action: `described`, `created`.
        doing: &'static str,
        /// The error of Kinesis.
        reason: String,
    },
}

/// Builds a client that sends every request once.
pub(super) async fn client(options: &Options) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_MAX.min(options.request_timeout))
        .operation_timeout(options.request_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts);
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(KinesisKeys { id, secret }) = &options.keys {
        let keys = Credentials::new(id, secret, None, None, "admit");
        loader = loader.credentials_provider(keys);
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    Client::new(&loader.load().await)
}

/// Checks that every topic has its own usable stream, creating it if configured.
pub(super) async fn check_streams(
    client: &Client,
    options: &Options,
    topics: &[String],
) -> Result<(), OpenError> {
    let mut owners: HashMap<String, &String> = HashMap::new();
    for topic in topics.iter().chain(options.streams.keys()) {
        let stream = options.stream(topic);
        match owners.get(&stream) {
            Some(other) if *other != topic => {
                let (one, other) = ((*other).clone(), topic.clone());
                return Err(OpenError::SharedStream { one, other, stream });
            }
            _ => owners.insert(stream, topic),
        };
    }
    for topic in topics {
        check_stream(client, options, topic).await?;
    }
    Ok(())
}

async fn check_stream(client: &Client, options: &Options, topic: &str) -> Result<(), OpenError> {
    let stream = options.stream(topic);
    let deadline = Instant::now() + CREATE_TIMEOUT;
    let mut is_created = false;
    loop {
        let fail = |doing, reason| OpenError::Stream { stream: stream.clone(), doing, reason };
        let described = client.describe_stream_summary().stream_name(&stream).send().await;
        let status = match described {
            Ok(described) => {
                described.stream_description_summary().map(|s| s.stream_status().clone())
            }
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(fail("described", error_text(&error))),
        };
        match status {
            Some(StreamStatus::Active | StreamStatus::Updating) => return Ok(()),
            None if !options.create_streams => {
                return Err(OpenError::NoStream { stream, topic: topic.to_owned() });
            }
            None if !is_created => {
                create(client, options, &stream).await.map_err(|reason| fail("created", reason))?;
                is_created = true;
            }
            _ => {}
        }
        if Instant::now() >= deadline {
            return Err(fail("created", "timeout: it did not become active".to_owned()));
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn create(client: &Client, options: &Options, stream: &str) -> Result<(), String> {
    let request = client.create_stream().stream_name(stream);
    let mode = |mode| StreamModeDetails::builder().stream_mode(mode).build();
    let request = match i32::try_from(options.shards) {
        Ok(0) => {
            let mode = mode(StreamMode::OnDemand).map_err(|error| error.to_string())?;
            request.stream_mode_details(mode)
        }
        Ok(shards) => request.shard_count(shards),
        Err(_) => return Err("too many shards".to_owned()),
    };
    match request.send().await {
        Ok(_) => {
            tracing::info!(stream, "created a stream");
            Ok(())
        }
        // Another process created it concurrently.
        Err(error)
            if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) =>
        {
            Ok(())
        }
        Err(error) => Err(error_text(&error)),
    }
}
