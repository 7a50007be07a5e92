//! Transports: a wire opens links, and a link is a pair of queues served by tasks.

pub mod connect;
pub mod grpc;
pub mod http;
pub mod row_request;
pub mod websocket;

mod reply_parser;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, header};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::store::OutboxRow;

/// One boxed future per connection.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Credentials of the sender, and the principal it sends for.
#[derive(Clone, Default)]
pub struct SenderIdentity {
    /// The sender's API key.
    pub key: Option<String>,
    /// The principal on whose behalf it sends, if not its own.
    pub speaks_for: Option<String>,
}

impl fmt::Debug for SenderIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("speaks_for", &self.speaks_for).finish_non_exhaustive()
    }
}

impl SenderIdentity {
    /// The HTTP headers. A value that is not valid in a header is omitted.
    pub(crate) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let key = self.key.as_ref().and_then(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
            value.set_sensitive(true);
            Some((header::AUTHORIZATION, value))
        });
        let name = self.speaks_for.as_ref().and_then(|name| {
            let value = HeaderValue::try_from(name.as_str()).ok()?;
            Some((HeaderName::from_static("admit-principal"), value))
        });
        key.into_iter().chain(name).collect()
    }
}

/// Transport to the gate.
pub trait Wire: fmt::Display + Send + Sync {
    /// Connects. The tasks of the link are spawned in `tasks` and end with the link.
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<GateLink, String>>;

    /// Maximum rows in flight, at most `in_flight_max`. The acknowledgement timeout starts when a
    /// row is handed to the link, so a transport that sends serially keeps this small.
    fn window(&self, in_flight_max: usize) -> usize {
        in_flight_max
    }

    /// The name that the reply to a row will contain.
    fn reply_name(&self, row: &OutboxRow) -> String;
}

/// Connection to the gate. Dropping it ends its tasks.
#[derive(Debug)]
pub struct GateLink {
    pub(crate) outgoing: mpsc::Sender<OutboxRow>,
    pub(crate) incoming: mpsc::Receiver<Result<WireReply, String>>,
    _cancel: DropGuard,
}

/// The ends of a link's queues that its tasks use.
#[derive(Debug)]
pub(crate) struct LinkEnds {
    pub(crate) outgoing: mpsc::Receiver<OutboxRow>,
    pub(crate) incoming: mpsc::Sender<Result<WireReply, String>>,
    pub(crate) cancel: CancellationToken,
}

impl GateLink {
    /// Creates a link with queues for `rows` rows in each direction.
    pub(crate) fn with_capacity(rows: usize) -> (Self, LinkEnds) {
        let (outgoing, rows_to_send) = mpsc::channel(rows.max(1));
        let (replies, incoming) = mpsc::channel(rows.max(1) + 1);
        let cancel = CancellationToken::new();
        let link_ends =
            LinkEnds { outgoing: rows_to_send, incoming: replies, cancel: cancel.clone() };
        (Self { outgoing, incoming, _cancel: cancel.drop_guard() }, link_ends)
    }
}

/// Reply of the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WireReply {
    /// The name of the row, if the reply has one.
    pub(crate) name: Option<String>,
    pub(crate) result: AckResult,
}

/// Content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AckResult {
    /// The event is stored at the gate.
    Ack,
    /// The event is not stored.
    Nack {
        error: String,
        /// Whether the gate expects a retry to succeed.
        retryable: bool,
        /// Minimum delay before a retry.
        retry_after: Duration,
    },
}
