//! NATS JetStream: one stream per topic; the server deduplicates by the dedupe key.
//!
//! The offset is the stream's sequence number, the partition is always 0, and the order of a stream
//! is the order of every partition key in it. Outcomes of a publish: [`send`]; requirements for a
//! stream: [`stream`]; why a connection is never reused after an error: [`link`].
//!
//! The server stamps messages with its own clock, so a search widens its time range by the clock
//! slack. `published_at` is the publisher's time, from a header.

mod header;
mod link;
mod monitor;
mod query;
mod send;
mod stream;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use admit_core::with_causes;
use async_nats::ServerAddr;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::name;
use crate::port::{
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchQuery,
    SearchResult, StoredMessage,
};
use link::{NatsLink, NatsSession};
use stream::UnusableStream;

/// The only partition of a topic.
const PARTITION: u32 = 0;
/// Maximum messages per [`Bus::read`].
const READ_ROWS_MAX: usize = 10_000;

/// Client credentials.
#[derive(Clone, Default)]
pub enum Auth {
    /// No authentication.
    #[default]
    None,
    /// A user with a password.
    User {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// A `.creds` file; read again for every connection.
    Credentials(PathBuf),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::User { user, .. } => write!(f, "User {user:?}"),
            Self::Token(_) => f.write_str("Token"),
            Self::Credentials(path) => write!(f, "Credentials {path:?}"),
        }
    }
}

/// Options of a NATS bus.
#[derive(Clone)]
pub struct Options {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`, comma-separated. It may contain a user and a
    /// password, and is never logged.
    pub url: String,
    /// Credentials, unless the URL contains them.
    pub auth: Auth,
    /// Whether a connection without TLS is refused.
    pub tls_required: bool,
    /// CA certificate of the server; a PEM file.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key; PEM files.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Prefix of subjects; the topic follows.
    pub subject_prefix: String,
    /// Prefix of stream names; the topic follows, with `_` for dots.
    pub stream_prefix: String,
    /// Whether missing streams are created.
    pub create_streams: bool,
    /// Replicas of created streams.
    pub replicas: usize,
    /// Deduplication window of created streams.
    pub duplicate_window: Duration,
    /// Retention time of created streams; `None` is unlimited.
    pub keep: Option<Duration>,
    /// Size limit of created streams in bytes.
    pub stream_bytes_max: Option<u64>,
    /// Maximum unacknowledged messages; further ones wait.
    pub in_flight_max: usize,
    /// Timeout of acknowledgements and requests.
    pub ack_timeout: Duration,
    /// Timeout of connecting to one server.
    pub connect_timeout: Duration,
    /// Maximum difference between the server's clock and ours.
    pub clock_slack: Duration,
    /// Messages a search reads before it gives up with [`SearchResult::Unknown`].
    pub find_messages_max: u64,
    /// Timeout of a search, read or probe.
    pub query_timeout: Duration,
    /// See [`Bus::delivery_timeout`].
    pub delivery_timeout: Duration,
    /// Largest payload that will be published, in bytes; used to warn at start if the server's
    /// limit is lower.
    pub message_bytes_max: usize,
    /// The server's monitoring endpoint; see [`monitor`].
    pub monitor: Option<String>,
}

impl Options {
    /// The defaults, at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            auth: Auth::None,
            tls_required: false,
            ca: None,
            client_certificate: None,
            subject_prefix: String::new(),
            stream_prefix: String::new(),
            create_streams: true,
            replicas: 1,
            duplicate_window: Duration::from_secs(120),
            keep: None,
            stream_bytes_max: None,
            in_flight_max: 1_024,
            ack_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            clock_slack: Duration::from_secs(60),
            find_messages_max: 2_000_000,
            query_timeout: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(30),
            message_bytes_max: 1 << 20,
            monitor: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// Error of opening a NATS bus.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Invalid address.
    #[error("invalid nats address: {0}; expected nats://HOST:PORT")]
    InvalidAddress(String),
    /// No server is reachable.
    #[error("nats is not reachable at {servers}: {reason}")]
    Unreachable {
        /// The servers, without secrets.
        servers: String,
        /// The cause.
        reason: String,
    },
    /// A topic that cannot be published to.
    #[error("topic {topic} cannot be published: {reason}")]
    Topic {
        /// The topic.
        topic: String,
        /// The reason.
        reason: String,
    },
    /// The connection thread could not be started.
    #[error("failed to start the thread for the nats connection")]
    Thread(#[from] std::io::Error),
}

/// Bus on NATS JetStream.
#[derive(Debug)]
pub struct NatsBus {
    options: Options,
    link: NatsLink,
    /// Topics whose streams were checked. A stream that disappears later is not created again: its
    /// sequences would restart and offsets would mean something else.
    prepared: Mutex<HashSet<String>>,
}

impl NatsBus {
    /// Connects, and creates or checks the streams of these topics.
    ///
    /// # Errors
    /// When no server is reachable, or a stream does not keep what it acknowledges.
    pub async fn open(mut options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let servers = servers(&mut options)?;
        let server_names: Vec<String> =
            servers.iter().map(|one| format!("{}:{}", one.host(), one.port())).collect();
        let link = NatsLink::start(options.clone(), servers)?;
        let bus = Self { options, link, prepared: Mutex::default() };
        let unreachable =
            |reason| OpenError::Unreachable { servers: server_names.join(","), reason };
        let session = bus.link.first().await.map_err(unreachable)?;
        for topic in topics {
            let topic_error = |reason: &str| {
                let (topic, reason) = (topic.clone(), reason.to_owned());
                OpenError::Topic { topic, reason }
            };
            name::check_topic(topic).map_err(topic_error)?;
            bus.prepare(&session, topic)
                .await
                .map_err(|UnusableStream(reason)| topic_error(&reason))?;
        }
        if !topics.is_empty() {
            bus.warn(&session).await;
        }
        Ok(bus)
    }

    /// Logs warnings about the server's settings before anything is published.
    async fn warn(&self, session: &NatsSession) {
        let (max_payload, message_bytes_max) =
            (session.client.max_payload(), self.options.message_bytes_max);
        if max_payload < message_bytes_max {
            tracing::warn!(
                max_payload,
                message_bytes_max,
                "the server's max_payload is below the gate's message limit; larger messages will be refused"
            );
        }
        let advice =
            "a power cut loses acknowledged messages unless jetstream.sync_interval is always";
        let Some(monitor) = &self.options.monitor else {
            tracing::warn!(
                "unknown whether nats syncs before it acknowledges: {advice}; \
                 set bus.nats.monitor to check"
            );
            return;
        };
        match monitor::syncs_always(monitor).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(monitor, "nats acknowledges before it syncs: {advice}"),
            Err(reason) => tracing::warn!(
                monitor,
                reason,
                "failed to check whether nats syncs before it acknowledges: {advice}"
            ),
        }
    }

    fn is_prepared(&self, topic: &str) -> bool {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }

    async fn prepare(&self, session: &NatsSession, topic: &str) -> Result<(), UnusableStream> {
        if !self.is_prepared(topic) {
            stream::prepare(&session.context, &self.options, topic).await?;
            let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            prepared.insert(topic.to_owned());
        }
        Ok(())
    }

    /// Checks each message; the reason, if any, is why it is not sent.
    async fn checked(
        &self,
        session: &NatsSession,
        batch: Vec<Message>,
    ) -> Vec<(Message, Option<String>)> {
        let mut topic_errors: HashMap<String, String> = HashMap::new();
        let mut checked = Vec::with_capacity(batch.len());
        for message in batch {
            let mut reason = not_a_message(&message).map(str::to_owned);
            if reason.is_none() && !self.is_prepared(&message.topic) {
                let topic: &str = &message.topic;
                if !topic_errors.contains_key(topic)
                    && let Err(UnusableStream(reason)) = self.prepare(session, topic).await
                {
                    topic_errors.insert(topic.to_owned(), reason);
                }
                reason = topic_errors.get(topic).cloned();
            }
            checked.push((message, reason));
        }
        checked
    }

    /// Probes whether a stream accepts messages.
    async fn probe(&self, session: &NatsSession, topic: &str) -> BusHealth {
        let name = stream::name_of(&self.options, topic);
        match stream::info(&session.context, &name).await {
            Err(reason) => BusHealth::Unknown { reason: format!("stream {name}: {reason}") },
            Ok(None) => BusHealth::Down { reason: format!("stream {name} does not exist") },
            Ok(Some(info)) => match stream::is_full(&info) {
                true => BusHealth::Down {
                    reason: format!(
                        "stream {name} is full; raise its limits, or delete messages that have been read"
                    ),
                },
                false => BusHealth::Up,
            },
        }
    }
}

/// Parses the servers from the URL, and moves credentials from the URL to `auth`.
fn servers(options: &mut Options) -> Result<Vec<ServerAddr>, OpenError> {
    let mut servers = Vec::new();
    for part in options.url.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let url = if part.contains("://") { part.to_owned() } else { format!("nats://{part}") };
        let (scheme, rest) = url.split_once("://").unwrap_or(("nats", &url));
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        match credentials.map(|credentials| credentials.split_once(':')) {
            None => {}
            // Percent-decoded as in any URL.
            Some(Some((user, password))) => {
                let (user, password) = (header::unescape(user), header::unescape(password));
                options.auth = Auth::User { user, password };
            }
            Some(None) => {
                options.auth = Auth::Token(header::unescape(credentials.unwrap_or_default()))
            }
        }
        // Without secrets: the library may log its servers.
        let server = format!("{scheme}://{host}").parse();
        let invalid = |error: std::io::Error| OpenError::InvalidAddress(error.to_string());
        let server: ServerAddr = server.map_err(invalid)?;
        if server.host().is_empty() {
            return Err(OpenError::InvalidAddress("no host".to_owned()));
        }
        servers.push(server);
    }
    match servers.is_empty() {
        true => Err(OpenError::InvalidAddress("empty".to_owned())),
        false => Ok(servers),
    }
}

/// Reason why a message is invalid, if it is.
fn not_a_message(message: &Message) -> Option<&'static str> {
    let checked = name::check_topic(&message.topic)
        .and_then(|()| name::check_partition_key(&message.partition_key))
        .and_then(|()| name::check_dedupe_key(&message.dedupe_key));
    checked.err()
}

impl Bus for NatsBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            match self.link.session() {
                Ok(session) => {
                    let batch = self.checked(&session, batch).await;
                    send::publish(&self.link, &session, &self.options, batch).await
                }
                Err(reason) => {
                    let reason = format!("{reason}, nothing was sent");
                    vec![PublishOutcome::NotWritten { reason }; batch.len()]
                }
            }
        })
    }

    fn find(&self, queries: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        Box::pin(async move {
            let unknown = |reason: String| vec![SearchResult::Unknown { reason }; queries.len()];
            if queries.is_empty() {
                return Vec::new();
            }
            let session = match self.link.session() {
                Ok(session) => session,
                Err(reason) => return unknown(reason),
            };
            let mut by_topic: HashMap<&str, Vec<(usize, &SearchQuery)>> = HashMap::new();
            for (index, one) in queries.iter().enumerate() {
                by_topic.entry(&one.topic).or_default().push((index, one));
            }
            let mut results = unknown("timeout: the search did not complete".to_owned());
            let search = async {
                for (topic, queries) in by_topic {
                    let found = match name::check_topic(topic) {
                        Ok(()) => query::find(&session, &self.options, topic, &queries).await,
                        Err(_) => queries
                            .iter()
                            .map(|(index, _)| (*index, SearchResult::Absent))
                            .collect(),
                    };
                    for (index, found) in found {
                        results[index] = found;
                    }
                }
            };
            // Queries not reached before the timeout keep the result "unknown".
            let _in_time = timeout(self.options.query_timeout, search).await;
            results
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let checked_from = check_read(topic, partition, from);
        let topic = topic.to_owned();
        Box::pin(async move {
            let from = checked_from?;
            let unavailable = |reason| BusError::Unavailable { reason, source: None };
            let session = self.link.session().map_err(unavailable)?;
            let rows_max = rows_max.min(READ_ROWS_MAX);
            let read = query::read(&session, &self.options, &topic, from, rows_max);
            let late = |_| unavailable("timeout: no response from nats".to_owned());
            timeout(self.options.query_timeout, read).await.map_err(late)?
        })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let topics = topics.to_vec();
        Box::pin(async move {
            for topic in &topics {
                if let Err(reason) = name::check_topic(topic) {
                    return BusHealth::Down {
                        reason: format!("invalid topic {topic:?}: {reason}"),
                    };
                }
            }
            let session = match self.link.session() {
                Ok(session) => session,
                Err(reason) => return BusHealth::Down { reason },
            };
            if topics.is_empty() {
                return match session.context.query_account().await {
                    Ok(_) => BusHealth::Up,
                    Err(error) => BusHealth::Unknown { reason: with_causes(&error) },
                };
            }
            let probes = join_all(topics.iter().map(|topic| self.probe(&session, topic)));
            let late = |_| {
                vec![BusHealth::Unknown { reason: "timeout: no response from nats".to_owned() }]
            };
            let probed = timeout(self.options.query_timeout, probes).await.unwrap_or_else(late);
            worst(probed)
        })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::NatsSequence
    }

    fn delivery_timeout(&self) -> Duration {
        self.options.delivery_timeout
    }
}

fn worst(probed: Vec<BusHealth>) -> BusHealth {
    let rank = |health: &BusHealth| match health {
        BusHealth::Up => 0,
        BusHealth::Unknown { .. } => 1,
        BusHealth::Down { .. } => 2,
    };
    probed.into_iter().max_by_key(rank).unwrap_or(BusHealth::Up)
}

/// Validates the arguments of a read. Returns the first sequence.
fn check_read(topic: &str, partition: u32, from: &str) -> Result<u64, BusError> {
    name::check_topic(topic)
        .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
    if partition != PARTITION {
        return Err(BusError::NoSuchPartition { topic: topic.to_owned(), partition });
    }
    if from.is_empty() {
        return Ok(0);
    }
    let kind = OffsetKind::NatsSequence;
    from.parse().map_err(|_| BusError::NotAnOffset { offset: from.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_removed_and_never_shown() {
        for (url, count, auth) in [
            ("nats://bus:4222", 1, "None"),
            ("nats://me:hush@a:4222,nats://me:hush@b:4222", 2, "User \"me\""),
            ("tls://hush@bus", 1, "Token"),
            ("bus", 1, "None"),
        ] {
            let mut options = Options::new(url);
            let servers = servers(&mut options).unwrap();
            assert_eq!(servers.len(), count, "{url}");
            assert_eq!(format!("{:?}", options.auth), auth, "{url}");
            assert!(!format!("{servers:?}{options:?}").contains("hush"), "{url}");
        }
        let mut options = Options::new("nats://m%40e:h%3Aus%h@bus");
        servers(&mut options).unwrap();
        let Auth::User { user, password } = options.auth else { panic!("{:?}", options.auth) };
        assert_eq!((user.as_str(), password.as_str()), ("m@e", "h:us%h"));
        assert!(servers(&mut Options::new("")).is_err());
        assert!(servers(&mut Options::new("nats://")).is_err());
        assert!(servers(&mut Options::new("nats://[bad")).is_err());
    }
}
