//! How rows travel: each wire makes links, and a link is two queues with tasks behind them.

pub mod connect;
pub mod grpc;
pub mod http;
pub mod parcel;
pub mod websocket;

mod answer;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, header};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::store::Row;

/// One boxed future per connection.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who is sending, and for whom.
#[derive(Clone, Default)]
pub struct Identity {
    /// The sender's own key.
    pub key: Option<String>,
    /// The principal it speaks for, if not itself.
    pub speaks_for: Option<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("speaks_for", &self.speaks_for).finish_non_exhaustive()
    }
}

impl Identity {
    /// The headers that say so. A key that no header can carry says nothing.
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

/// A way to the gate.
pub trait Wire: fmt::Display + Send + Sync {
    /// Connects. The tasks of the link run in `tasks` and end with it.
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<Link, String>>;

    /// How many rows may be under way at once, where `in_flight_max` are allowed. Answers are waited
    /// for from when a row is handed over, so a wire that sends one after another keeps this small.
    fn window(&self, in_flight_max: usize) -> usize {
        in_flight_max
    }

    /// The name that the answer to a row will carry.
    fn name_of(&self, row: &Row) -> String;
}

/// A connection. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Link {
    pub(crate) outgoing: mpsc::Sender<Row>,
    pub(crate) incoming: mpsc::Receiver<Result<Heard, String>>,
    _cut: DropGuard,
}

/// The other ends of a link, for its tasks.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) outgoing: mpsc::Receiver<Row>,
    pub(crate) incoming: mpsc::Sender<Result<Heard, String>>,
    pub(crate) cut: CancellationToken,
}

impl Link {
    /// A link with room for so many rows each way.
    pub(crate) fn with_room(rows: usize) -> (Self, Ends) {
        let (outgoing, rows_to_send) = mpsc::channel(rows.max(1));
        let (answers, incoming) = mpsc::channel(rows.max(1) + 1);
        let cut = CancellationToken::new();
        let ends = Ends { outgoing: rows_to_send, incoming: answers, cut: cut.clone() };
        (Self { outgoing, incoming, _cut: cut.drop_guard() }, ends)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Which row it is about, if it says so.
    pub(crate) name: Option<String>,
    pub(crate) said: Said,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is stored there.
    Ack,
    /// It is not.
    Nack {
        error: String,
        /// Whether the same may pass later, as far as the gate knows.
        retryable: bool,
        /// Not before so long.
        retry_after: Duration,
    },
}
