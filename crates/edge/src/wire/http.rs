//! HTTP/1.1 transport: one request per row, over a few persistent connections.
//!
//! Rows that must keep their order share a connection: all rows of a session or stream. The
//! pixel-control plugin itself sends in any order, so its rows are distributed round-robin.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::connect::{Endpoint, Protocol};
use super::row_request::RowRequest;
use super::{
    AckResult, BoxFuture, GateLink, LinkEnds, SenderIdentity, Wire, WireReply, reply_parser,
};
use crate::store::OutboxRow;

/// Number of concurrent connections.
const CONNECTIONS: usize = 8;

/// Maximum rows in flight. If all belong to one session or stream they are sent serially, and the
/// last must still be acknowledged in time over a slow network.
const WINDOW: usize = 4 * CONNECTIONS;

/// Maximum size of a reply.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Timeout of one request. The sender's own timeout is usually shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Request and reply format of a door over HTTP, and the order of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A row is an envelope; sessions keep their order.
    Skyra,
    /// A row is the plugin's body.
    PixelControl,
    /// A row is a [`RowRequest`]; all of them keep their order.
    Events,
}

impl Dialect {
    /// Ordering key: rows with the same key must not overtake each other; `None` has no order.
    fn order_key(self, row: &OutboxRow) -> Option<String> {
        match self {
            Self::Skyra => Some(reply_parser::skyra_session(&row.payload_json).unwrap_or_default()),
            Self::PixelControl => None,
            Self::Events => Some(String::new()),
        }
    }

    fn request(self, row: &OutboxRow) -> Result<RowRequest, String> {
        match self {
            Self::Skyra | Self::PixelControl => Ok(RowRequest {
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: row.payload_json.clone().into_bytes(),
            }),
            Self::Events => RowRequest::from_payload(&row.payload_json)
                .ok_or_else(|| "the row's payload is not a request; it was modified".to_owned()),
        }
    }

    fn parse_reply(self, status: u16, body: &[u8], row: &OutboxRow) -> AckResult {
        match self {
            Self::Skyra => {
                let (name, result) = reply_parser::skyra(body, Some(status));
                let is_other_event = name != reply_parser::skyra_event_id(&row.payload_json);
                if result == AckResult::Ack && is_other_event {
                    return retryable_nack("an ack for another event".to_owned());
                }
                result
            }
            Self::PixelControl => reply_parser::pixel(status, body, &row.payload_json),
            Self::Events => reply_parser::events(status, body, key_of(row)),
        }
    }
}

/// The event key of a stream's row; a conflicting row has a suffix after `~`.
fn key_of(row: &OutboxRow) -> &str {
    row.event_id.split('~').next().unwrap_or_default()
}

fn retryable_nack(error: String) -> AckResult {
    AckResult::Nack { error, retryable: true, retry_after: Duration::ZERO }
}

/// A door over HTTP.
#[derive(Debug)]
pub struct HttpWire {
    door: Arc<HttpDoor>,
}

#[derive(Debug)]
struct HttpDoor {
    gate: Endpoint,
    path: String,
    identity: SenderIdentity,
    dialect: Dialect,
}

impl HttpWire {
    /// The door at `path` of `gate` with the format `dialect`.
    pub fn new(gate: Endpoint, path: &str, identity: SenderIdentity, dialect: Dialect) -> Self {
        Self { door: Arc::new(HttpDoor { gate, path: path.to_owned(), identity, dialect }) }
    }
}

impl fmt::Display for HttpWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} by http", self.door.gate, self.door.path)
    }
}

type Connection = SendRequest<Full<Bytes>>;

impl HttpDoor {
    async fn open(&self, tasks: &TaskTracker) -> Result<Connection, String> {
        let stream = self.gate.connect(Protocol::Http1).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the gate ended");
            }
        });
        Ok(sender)
    }

    /// Opens a connection, and checks the gate's readiness: a proxy accepts connections for a gate
    /// that is down, and no row's attempt should be wasted on it.
    async fn open_ready(&self, tasks: &TaskTracker) -> Result<Connection, String> {
        let mut connection = self.open(tasks).await?;
        let probe = Request::get(format!("{}/readyz", self.gate.prefix))
            .header(header::HOST, &self.gate.authority)
            .body(Full::new(Bytes::new()))
            .map_err(|error| format!("failed to build the request: {error}"))?;
        match send_request(&mut connection, probe).await {
            Ok((status, _)) if status < 500 => Ok(connection),
            Ok((status, body)) => {
                let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                Err(format!("the gate is not ready: status {status} {text}"))
            }
            Err(error) => Err(format!("cannot connect: {error}")),
        }
    }

    fn request(&self, row: &OutboxRow) -> Result<Request<Full<Bytes>>, String> {
        let stored = self.dialect.request(row)?;
        let mut request = Request::post(format!("{}{}", self.gate.prefix, self.path))
            .header(header::HOST, &self.gate.authority);
        for (name, value) in stored.headers {
            let named = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = named.ok_or("the row has an invalid header")?;
            request = request.header(name, value);
        }
        for (name, value) in self.identity.headers() {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(stored.body));
        request.body(body).map_err(|error| format!("failed to build the request: {error}"))
    }

    /// Sends one row and reads the reply. A persistent connection that turns out to be closed is
    /// replaced once.
    async fn exchange(
        &self,
        connection_slot: &mut Option<Connection>,
        row: &OutboxRow,
        tasks: &TaskTracker,
    ) -> AckResult {
        let mut reason = String::new();
        for _ in 0..2 {
            let request = match self.request(row) {
                Ok(request) => request,
                // This row can never be sent; others can.
                Err(error) => {
                    return AckResult::Nack {
                        error,
                        retryable: false,
                        retry_after: Duration::ZERO,
                    };
                }
            };
            let was_reused = connection_slot.is_some();
            let mut connection = match connection_slot.take() {
                Some(connection) => connection,
                None => match self.open(tasks).await {
                    Ok(connection) => connection,
                    Err(error) => return retryable_nack(error),
                },
            };
            match send_request(&mut connection, request).await {
                Ok((status, body)) => {
                    *connection_slot = Some(connection);
                    return self.dialect.parse_reply(status, &body, row);
                }
                Err(error) => reason = error,
            }
            if !was_reused {
                break;
            }
        }
        retryable_nack(format!("no reply: {reason}"))
    }
}

async fn send_request(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    connection.ready().await.map_err(|error| error.to_string())?;
    let response = connection.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), REPLY_BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}

impl Wire for HttpWire {
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<GateLink, String>> {
        Box::pin(async move {
            let mut first = Some(self.door.open_ready(tasks).await?);
            let (link, link_ends) = GateLink::with_capacity(in_flight_max);
            let LinkEnds { mut outgoing, incoming, cancel } = link_ends;
            let queues: Vec<mpsc::Sender<OutboxRow>> = (0..CONNECTIONS)
                .map(|_| {
                    let (queue, mut rows) = mpsc::channel::<OutboxRow>(in_flight_max.max(1));
                    let (door, connection_tasks) = (Arc::clone(&self.door), tasks.clone());
                    let (incoming, cancel) = (incoming.clone(), cancel.clone());
                    let mut connection_slot = first.take();
                    let work = async move {
                        while let Some(row) = rows.recv().await {
                            let exchange =
                                door.exchange(&mut connection_slot, &row, &connection_tasks);
                            let result = timeout(REQUEST_TIMEOUT, exchange)
                                .await
                                .unwrap_or_else(|_| retryable_nack("timeout: no reply".to_owned()));
                            let reply = WireReply { name: Some(row.event_id), result };
                            if incoming.send(Ok(reply)).await.is_err() {
                                return;
                            }
                        }
                    };
                    tasks.spawn(cancel.run_until_cancelled_owned(work));
                    queue
                })
                .collect();
            let dialect = self.door.dialect;
            let dispatch = async move {
                let mut next = 0_usize;
                while let Some(row) = outgoing.recv().await {
                    next = next.wrapping_add(1);
                    let queue =
                        dialect.order_key(&row).map_or(next, |order_key| queue_index(&order_key))
                            % CONNECTIONS;
                    if queues[queue].send(row).await.is_err() {
                        return;
                    }
                }
            };
            tasks.spawn(cancel.run_until_cancelled_owned(dispatch));
            Ok(link)
        })
    }

    fn window(&self, in_flight_max: usize) -> usize {
        in_flight_max.min(WINDOW)
    }

    fn reply_name(&self, row: &OutboxRow) -> String {
        row.event_id.clone()
    }
}

fn queue_index(order_key: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    order_key.hash(&mut hasher);
    usize::try_from(hasher.finish() % CONNECTIONS as u64).unwrap_or(0)
}
