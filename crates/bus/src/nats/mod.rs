//! NATS JetStream: one stream for each topic, and the server tells copies by their dedupe key.
//!
//! The offset is the sequence number of the stream, the partition is always 0, and the order of a
//! stream is the order of every partition key in it. What becomes of a message is in [`send`], what a
//! stream must be in [`stream`], why a connection is never mended in [`link`].
//!
//! The server assigns its own time, so a search reads a range of that, widened by how far the clocks
//! may be apart. What `published_at` says is the publisher's time, which travels in a header.

mod header;
mod link;
mod look;
mod monitor;
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
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Sought,
};
use link::{Link, Session};
use stream::Unfit;

/// The only partition of a topic.
const PARTITION: u32 = 0;
/// Most messages that one [`Bus::read`] returns, whatever it is asked for.
const READ_ROWS_MAX: usize = 10_000;

/// Who we are to the server.
#[derive(Clone, Default)]
pub enum Auth {
    /// It does not ask.
    #[default]
    Nobody,
    /// A user with a password.
    User {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// A `.creds` file; it is read for every connection.
    Credentials(PathBuf),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("Nobody"),
            Self::User { user, .. } => write!(f, "User {user:?}"),
            Self::Token(_) => f.write_str("Token"),
            Self::Credentials(path) => write!(f, "Credentials {path:?}"),
        }
    }
}

/// How a bus on NATS is opened.
#[derive(Clone)]
pub struct Options {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`, more of them after commas. It may hold a user and a
    /// password, and is never shown.
    pub url: String,
    /// Who we are, unless the URL says so.
    pub auth: Auth,
    /// Whether a connection without TLS is refused.
    pub tls_required: bool,
    /// Who vouches for the server; a PEM file.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key; PEM files.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// What comes before a topic to make its subject.
    pub subject_prefix: String,
    /// What comes before a topic, with `_` for dots, to make the name of its stream.
    pub stream_prefix: String,
    /// Whether streams that are not there are made.
    pub create_streams: bool,
    /// Servers that keep a stream that is made.
    pub replicas: usize,
    /// How long a stream that is made knows copies.
    pub duplicate_window: Duration,
    /// How long a stream that is made keeps messages; `None` is for ever.
    pub keep: Option<Duration>,
    /// Most bytes of a stream that is made.
    pub stream_bytes_max: Option<u64>,
    /// Messages on the way at once; further ones wait.
    pub in_flight_max: usize,
    /// How long an answer of the server is waited for.
    pub ack_timeout: Duration,
    /// How long a connection to one server may take.
    pub connect_timeout: Duration,
    /// How far the server's clock may be from ours.
    pub clock_slack: Duration,
    /// Messages a search reads before it says that it cannot tell.
    pub find_messages_max: u64,
    /// How long a search, a read or a probe may take.
    pub look_wait: Duration,
    /// See [`Bus::delivery_timeout`].
    pub delivery_timeout: Duration,
    /// Largest payload that will be published, in bytes; to say early that the server takes less.
    pub message_bytes_max: usize,
    /// The server's monitoring address; see [`monitor`].
    pub monitor: Option<String>,
}

impl Options {
    /// The defaults, at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            auth: Auth::Nobody,
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
            look_wait: Duration::from_secs(30),
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

/// Why a bus on NATS could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not an address.
    #[error("the address of nats cannot be read: {0}; write nats://HOST:PORT")]
    NotAnAddress(String),
    /// No connection.
    #[error("nats cannot be reached at {servers}: {reason}")]
    Unreachable {
        /// Where, without secrets.
        servers: String,
        /// What happened.
        reason: String,
    },
    /// A topic that cannot be published to.
    #[error("topic {topic} cannot be published: {reason}")]
    Topic {
        /// Which.
        topic: String,
        /// Why not.
        reason: String,
    },
    /// No thread for the connection.
    #[error("no thread for the connection to nats")]
    Thread(#[from] std::io::Error),
}

/// A bus on NATS JetStream.
#[derive(Debug)]
pub struct NatsBus {
    options: Options,
    link: Link,
    /// Topics whose streams are known to be good. A stream that goes away later is not made again:
    /// its sequences would begin anew, and offsets mean something else.
    prepared: Mutex<HashSet<String>>,
}

impl NatsBus {
    /// Connects, and makes or checks the streams of these topics.
    ///
    /// # Errors
    /// When no server can be reached, or a stream is not one that keeps what it acknowledges.
    pub async fn open(mut options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let servers = servers(&mut options)?;
        let shown: Vec<String> =
            servers.iter().map(|one| format!("{}:{}", one.host(), one.port())).collect();
        let link = Link::start(options.clone(), servers)?;
        let bus = Self { options, link, prepared: Mutex::default() };
        let unreachable = |reason| OpenError::Unreachable { servers: shown.join(","), reason };
        let session = bus.link.first().await.map_err(unreachable)?;
        for topic in topics {
            let refused = |reason: &str| {
                let (topic, reason) = (topic.clone(), reason.to_owned());
                OpenError::Topic { topic, reason }
            };
            name::check_topic(topic).map_err(refused)?;
            bus.prepare(&session, topic).await.map_err(|Unfit(reason)| refused(&reason))?;
        }
        if !topics.is_empty() {
            bus.warn(&session).await;
        }
        Ok(bus)
    }

    /// Says what an operator should know before anything is published.
    async fn warn(&self, session: &Session) {
        let (max_payload, message_bytes_max) =
            (session.client.max_payload(), self.options.message_bytes_max);
        if max_payload < message_bytes_max {
            tracing::warn!(
                max_payload,
                message_bytes_max,
                "nats takes smaller messages than the gate; larger ones will not be published"
            );
        }
        let advice =
            "a power cut loses what it acknowledged unless jetstream.sync_interval is always";
        let Some(monitor) = &self.options.monitor else {
            tracing::warn!(
                "whether nats syncs before it acknowledges is not known: {advice}; \
                 set bus.nats.monitor to have it asked"
            );
            return;
        };
        match monitor::syncs_always(monitor).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(monitor, "nats acknowledges before it syncs: {advice}"),
            Err(reason) => tracing::warn!(
                monitor,
                reason,
                "whether nats syncs before it acknowledges could not be asked: {advice}"
            ),
        }
    }

    fn is_prepared(&self, topic: &str) -> bool {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }

    async fn prepare(&self, session: &Session, topic: &str) -> Result<(), Unfit> {
        if !self.is_prepared(topic) {
            stream::prepare(&session.context, &self.options, topic).await?;
            let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            prepared.insert(topic.to_owned());
        }
        Ok(())
    }

    /// Every message with the reason why it is not sent, if there is one.
    async fn checked(
        &self,
        session: &Session,
        batch: Vec<Message>,
    ) -> Vec<(Message, Option<String>)> {
        let mut refused: HashMap<String, String> = HashMap::new();
        let mut checked = Vec::with_capacity(batch.len());
        for message in batch {
            let mut reason = not_a_message(&message).map(str::to_owned);
            if reason.is_none() && !self.is_prepared(&message.topic) {
                let topic: &str = &message.topic;
                if !refused.contains_key(topic)
                    && let Err(Unfit(reason)) = self.prepare(session, topic).await
                {
                    refused.insert(topic.to_owned(), reason);
                }
                reason = refused.get(topic).cloned();
            }
            checked.push((message, reason));
        }
        checked
    }

    /// Whether a stream can be published to.
    async fn probe(&self, session: &Session, topic: &str) -> BusHealth {
        let name = stream::name_of(&self.options, topic);
        match stream::look(&session.context, &name).await {
            Err(reason) => BusHealth::Unknown { reason: format!("the stream {name}: {reason}") },
            Ok(None) => BusHealth::Down { reason: format!("the stream {name} is not there") },
            Ok(Some(info)) => match stream::is_full(&info) {
                true => BusHealth::Down {
                    reason: format!(
                        "the stream {name} is full; raise its limits, or take away what has been read"
                    ),
                },
                false => BusHealth::Up,
            },
        }
    }
}

/// The servers that the URL names. A user in it becomes who we are.
fn servers(options: &mut Options) -> Result<Vec<ServerAddr>, OpenError> {
    let mut servers = Vec::new();
    for part in options.url.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let spelt = if part.contains("://") { part.to_owned() } else { format!("nats://{part}") };
        let (scheme, rest) = spelt.split_once("://").unwrap_or(("nats", &spelt));
        let (who, host) = match rest.rsplit_once('@') {
            Some((who, host)) => (Some(who), host),
            None => (None, rest),
        };
        match who.map(|who| who.split_once(':')) {
            None => {}
            // As in any URL, `%40` is an `@`.
            Some(Some((user, password))) => {
                let (user, password) = (header::unescaped(user), header::unescaped(password));
                options.auth = Auth::User { user, password };
            }
            Some(None) => options.auth = Auth::Token(header::unescaped(who.unwrap_or_default())),
        }
        // Without the secrets: whatever the library says of its servers may be logged.
        let server = format!("{scheme}://{host}").parse();
        let cannot = |error: std::io::Error| OpenError::NotAnAddress(error.to_string());
        let server: ServerAddr = server.map_err(cannot)?;
        if server.host().is_empty() {
            return Err(OpenError::NotAnAddress("it names no host".to_owned()));
        }
        servers.push(server);
    }
    match servers.is_empty() {
        true => Err(OpenError::NotAnAddress("there is none".to_owned())),
        false => Ok(servers),
    }
}

/// Why something is no message.
fn not_a_message(message: &Message) -> Option<&'static str> {
    let checked = name::check_topic(&message.topic)
        .and_then(|()| name::check_partition_key(&message.partition_key))
        .and_then(|()| name::check_dedupe_key(&message.dedupe_key));
    checked.err()
}

impl Bus for NatsBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>> {
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
                    vec![Published::NotWritten { reason }; batch.len()]
                }
            }
        })
    }

    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>> {
        Box::pin(async move {
            let cannot_tell = |reason: String| vec![Found::CannotTell { reason }; sought.len()];
            if sought.is_empty() {
                return Vec::new();
            }
            let session = match self.link.session() {
                Ok(session) => session,
                Err(reason) => return cannot_tell(reason),
            };
            let mut by_topic: HashMap<&str, Vec<(usize, &Sought)>> = HashMap::new();
            for (place, one) in sought.iter().enumerate() {
                by_topic.entry(&one.topic).or_default().push((place, one));
            }
            let mut answers = cannot_tell("the search did not end in time".to_owned());
            let search = async {
                for (topic, sought) in by_topic {
                    let found = match name::check_topic(topic) {
                        Ok(()) => look::find(&session, &self.options, topic, &sought).await,
                        Err(_) => sought.iter().map(|(place, _)| (*place, Found::Absent)).collect(),
                    };
                    for (place, found) in found {
                        answers[place] = found;
                    }
                }
            };
            // Whatever was not looked at keeps the answer that it could not be told.
            let _in_time = timeout(self.options.look_wait, search).await;
            answers
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        let asked = check_read(topic, partition, from);
        let topic = topic.to_owned();
        Box::pin(async move {
            let from = asked?;
            let unavailable = |reason| BusError::Unavailable { reason, source: None };
            let session = self.link.session().map_err(unavailable)?;
            let rows_max = rows_max.min(READ_ROWS_MAX);
            let read = look::read(&session, &self.options, &topic, from, rows_max);
            let late = |_| unavailable("nats did not answer in time".to_owned());
            timeout(self.options.look_wait, read).await.map_err(late)?
        })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let topics = topics.to_vec();
        Box::pin(async move {
            for topic in &topics {
                if let Err(reason) = name::check_topic(topic) {
                    return BusHealth::Down { reason: format!("{topic:?} is no topic: {reason}") };
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
            let late = |_| vec![BusHealth::Unknown { reason: "no answer in time".to_owned() }];
            let probed = timeout(self.options.look_wait, probes).await.unwrap_or_else(late);
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

/// Checks what a reader asks for, and gives the sequence to begin at.
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
    fn what_a_url_says_of_us_is_taken_out_of_it_and_never_shown() {
        for (url, count, auth) in [
            ("nats://bus:4222", 1, "Nobody"),
            ("nats://me:hush@a:4222,nats://me:hush@b:4222", 2, "User \"me\""),
            ("tls://hush@bus", 1, "Token"),
            ("bus", 1, "Nobody"),
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
