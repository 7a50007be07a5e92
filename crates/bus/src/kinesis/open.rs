//! How a Kinesis bus is opened: the client, which retries nothing, and the streams, which must be
//! there.

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

use super::frame;
use super::judge::{is_absent, said};

/// How long a stream that is made may take until it can be used.
const MADE_WITHIN: Duration = Duration::from_secs(120);
/// How often it is asked.
const ASKED_EVERY: Duration = Duration::from_millis(250);
/// A connection is there sooner, or not at all.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How a Kinesis bus is opened.
#[derive(Clone)]
pub struct Options {
    /// The region; `None` takes the one of the environment, the profile or the machine.
    pub region: Option<String>,
    /// Where the service is, if not at AWS.
    pub endpoint: Option<String>,
    /// These instead of whatever the usual chain would find.
    pub keys: Option<Keys>,
    /// What comes before a topic to make the name of its stream.
    pub stream_prefix: String,
    /// Topics whose stream has another name.
    pub streams: BTreeMap<String, String>,
    /// Whether streams that are not there are made.
    pub create_streams: bool,
    /// Shards of streams that are made; 0 leaves their number to Kinesis (on demand).
    pub shards: u32,
    /// Most bytes of a payload with its keys.
    pub message_bytes_max: usize,
    /// Messages that wait or are on their way. Further calls wait for room.
    pub in_flight_max: usize,
    /// Requests on their way at once, for one stream.
    pub requests_max: usize,
    /// How long an answer is waited for. Then the outcome is unknown.
    pub request_timeout: Duration,
    /// See [`Bus::delivery_timeout`](crate::Bus::delivery_timeout).
    pub delivery_timeout: Duration,
    /// How far the clock of Kinesis may be from ours: searches look so much further.
    pub clock_slack: Duration,
    /// How long a search or a read may take.
    pub find_wait: Duration,
    /// Records of one shard a search reads before it says that it cannot tell.
    pub find_records_max: u64,
    /// What tells how long records have been kept.
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
            find_wait: Duration::from_secs(60),
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

/// An access key and its secret, which is never shown.
#[derive(Clone)]
pub struct Keys {
    id: String,
    secret: String,
}

impl Keys {
    /// A key and its secret.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { id: id.into(), secret: secret.into() }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a Kinesis bus could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Records do not say their topic, so a stream has one.
    #[error(
        "the topics {one} and {other} would share the stream {stream}; give one of them another in bus.kinesis.streams"
    )]
    SharedStream {
        /// A topic.
        one: String,
        /// Another.
        other: String,
        /// Their stream.
        stream: String,
    },
    /// A stream is not there, and is not to be made.
    #[error(
        "there is no stream {stream} for the topic {topic}; make it, or set bus.kinesis.create_streams"
    )]
    NoStream {
        /// The stream.
        stream: String,
        /// Its topic.
        topic: String,
    },
    /// A stream cannot be looked at or made.
    #[error("the stream {stream} cannot be {doing}: {reason}")]
    Stream {
        /// The stream.
        stream: String,
        /// What was tried: `looked at`, `made`.
        doing: &'static str,
        /// What Kinesis says.
        reason: String,
    },
}

/// A client that sends every request once.
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
    if let Some(Keys { id, secret }) = &options.keys {
        let keys = Credentials::new(id, secret, None, None, "admit");
        loader = loader.credentials_provider(keys);
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    Client::new(&loader.load().await)
}

/// Makes sure that every topic has a stream of its own that can be published to.
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
    let until = Instant::now() + MADE_WITHIN;
    let mut is_made = false;
    loop {
        let fail = |doing, reason| OpenError::Stream { stream: stream.clone(), doing, reason };
        let described = client.describe_stream_summary().stream_name(&stream).send().await;
        let status = match described {
            Ok(described) => {
                described.stream_description_summary().map(|s| s.stream_status().clone())
            }
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(fail("looked at", said(&error))),
        };
        match status {
            Some(StreamStatus::Active | StreamStatus::Updating) => return Ok(()),
            None if !options.create_streams => {
                return Err(OpenError::NoStream { stream, topic: topic.to_owned() });
            }
            None if !is_made => {
                make(client, options, &stream).await.map_err(|reason| fail("made", reason))?;
                is_made = true;
            }
            _ => {}
        }
        if Instant::now() >= until {
            return Err(fail("made", "it takes too long to become active".to_owned()));
        }
        sleep(ASKED_EVERY).await;
    }
}

async fn make(client: &Client, options: &Options, stream: &str) -> Result<(), String> {
    let asked = client.create_stream().stream_name(stream);
    let mode = |mode| StreamModeDetails::builder().stream_mode(mode).build();
    let asked = match i32::try_from(options.shards) {
        Ok(0) => {
            let mode = mode(StreamMode::OnDemand).map_err(|error| error.to_string())?;
            asked.stream_mode_details(mode)
        }
        Ok(shards) => asked.shard_count(shards),
        Err(_) => return Err("it would have too many shards".to_owned()),
    };
    match asked.send().await {
        Ok(_) => {
            tracing::info!(stream, "a stream was made");
            Ok(())
        }
        // Somebody else was faster.
        Err(error)
            if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) =>
        {
            Ok(())
        }
        Err(error) => Err(said(&error)),
    }
}
