//! Rows over HTTP/1.1: one request each, over a few connections that are kept.
//!
//! Rows that must keep their order share a connection: all of a session, or of a stream. The
//! pixel-control plugin itself sends in any order, so its rows use whichever is next.

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
use super::parcel::Parcel;
use super::{BoxFuture, Ends, Heard, Identity, Link, Said, Wire, answer};
use crate::store::Row;

/// Connections that carry rows at the same time.
const LANES: usize = 8;

/// Most rows under way. They may all have to wait for each other, if they are of one session or
/// stream, and the last of them must still be answered in time over a slow network.
const WINDOW: usize = 4 * LANES;

/// Answers are small.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Longest wait for one answer. The sender gives up on a row earlier, where it is set up to.
const EXCHANGE_MAX: Duration = Duration::from_secs(30);

/// What a door speaks over HTTP, and how its rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A row is an envelope; sessions keep their order.
    Skyra,
    /// A row is the plugin's body.
    PixelControl,
    /// A row is a [`Parcel`]; all of them keep their order.
    Events,
}

impl Dialect {
    /// Which rows must not overtake each other; `None`: this one may overtake any.
    fn order(self, row: &Row) -> Option<String> {
        match self {
            Self::Skyra => Some(answer::skyra_session(&row.payload_json).unwrap_or_default()),
            Self::PixelControl => None,
            Self::Events => Some(String::new()),
        }
    }

    fn request(self, row: &Row) -> Result<Parcel, String> {
        match self {
            Self::Skyra | Self::PixelControl => Ok(Parcel {
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: row.payload_json.clone().into_bytes(),
            }),
            Self::Events => Parcel::from_payload(&row.payload_json)
                .ok_or_else(|| "the row holds no request; it was changed".to_owned()),
        }
    }

    fn said(self, status: u16, body: &[u8], row: &Row) -> Said {
        match self {
            Self::Skyra => {
                let (name, said) = answer::skyra(body, Some(status));
                let is_other = name != answer::skyra_name(&row.payload_json);
                if said == Said::Ack && is_other {
                    return failed("an ack for another event".to_owned());
                }
                said
            }
            Self::PixelControl => answer::pixel(status, body, &row.payload_json),
            Self::Events => answer::events(status, body, key_of(row)),
        }
    }
}

/// The key of a stream's row: a second one under the same key has more behind it.
fn key_of(row: &Row) -> &str {
    row.event_id.split('~').next().unwrap_or_default()
}

fn failed(error: String) -> Said {
    Said::Nack { error, retryable: true, retry_after: Duration::ZERO }
}

/// A door over HTTP.
#[derive(Debug)]
pub struct HttpWire {
    door: Arc<Door>,
}

#[derive(Debug)]
struct Door {
    gate: Endpoint,
    path: String,
    identity: Identity,
    dialect: Dialect,
}

impl HttpWire {
    /// The door at `path` of `gate`, which speaks `dialect`.
    pub fn new(gate: Endpoint, path: &str, identity: Identity, dialect: Dialect) -> Self {
        Self { door: Arc::new(Door { gate, path: path.to_owned(), identity, dialect }) }
    }
}

impl fmt::Display for HttpWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} by http", self.door.gate, self.door.path)
    }
}

type Connection = SendRequest<Full<Bytes>>;

impl Door {
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

    /// A connection to a gate that is ready, as far as it says. A proxy takes connections for a gate
    /// that is not there, and no row should be lost to it.
    async fn open_ready(&self, tasks: &TaskTracker) -> Result<Connection, String> {
        let mut connection = self.open(tasks).await?;
        let question = Request::get(format!("{}/readyz", self.gate.prefix))
            .header(header::HOST, &self.gate.authority)
            .body(Full::new(Bytes::new()))
            .map_err(|error| format!("no request can be made: {error}"))?;
        match one(&mut connection, question).await {
            Ok((status, _)) if status < 500 => Ok(connection),
            Ok((status, body)) => {
                let said = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                Err(format!("the gate is not ready: status {status} {said}"))
            }
            Err(error) => Err(format!("cannot connect: {error}")),
        }
    }

    fn request(&self, row: &Row) -> Result<Request<Full<Bytes>>, String> {
        let parcel = self.dialect.request(row)?;
        let mut request = Request::post(format!("{}{}", self.gate.prefix, self.path))
            .header(header::HOST, &self.gate.authority);
        for (name, value) in parcel.headers {
            let named = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = named.ok_or("the row holds a header that cannot be sent")?;
            request = request.header(name, value);
        }
        for (name, value) in self.identity.headers() {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(parcel.body));
        request.body(body).map_err(|error| format!("no request can be made: {error}"))
    }

    /// Sends one row and reads what the gate says. A kept connection that turns out to be closed
    /// is replaced once.
    async fn exchange(
        &self,
        kept: &mut Option<Connection>,
        row: &Row,
        tasks: &TaskTracker,
    ) -> Said {
        let mut reason = String::new();
        for _ in 0..2 {
            let request = match self.request(row) {
                Ok(request) => request,
                // It can never be sent as it is; the others can.
                Err(error) => {
                    return Said::Nack { error, retryable: false, retry_after: Duration::ZERO };
                }
            };
            let was_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => match self.open(tasks).await {
                    Ok(connection) => connection,
                    Err(error) => return failed(error),
                },
            };
            match one(&mut connection, request).await {
                Ok((status, body)) => {
                    *kept = Some(connection);
                    return self.dialect.said(status, &body, row);
                }
                Err(error) => reason = error,
            }
            if !was_kept {
                break;
            }
        }
        failed(format!("no answer: {reason}"))
    }
}

async fn one(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    connection.ready().await.map_err(|error| error.to_string())?;
    let answer = connection.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}

impl Wire for HttpWire {
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<Link, String>> {
        Box::pin(async move {
            let mut first = Some(self.door.open_ready(tasks).await?);
            let (link, ends) = Link::with_room(in_flight_max);
            let Ends { mut outgoing, incoming, cut } = ends;
            let lanes: Vec<mpsc::Sender<Row>> = (0..LANES)
                .map(|_| {
                    let (lane, mut rows) = mpsc::channel::<Row>(in_flight_max.max(1));
                    let (door, tasks_of_lane) = (Arc::clone(&self.door), tasks.clone());
                    let (incoming, cut) = (incoming.clone(), cut.clone());
                    let mut kept = first.take();
                    let work = async move {
                        while let Some(row) = rows.recv().await {
                            let talk = door.exchange(&mut kept, &row, &tasks_of_lane);
                            let said = timeout(EXCHANGE_MAX, talk)
                                .await
                                .unwrap_or_else(|_| failed("no answer in time".to_owned()));
                            let heard = Heard { name: Some(row.event_id), said };
                            if incoming.send(Ok(heard)).await.is_err() {
                                return;
                            }
                        }
                    };
                    tasks.spawn(cut.run_until_cancelled_owned(work));
                    lane
                })
                .collect();
            let dialect = self.door.dialect;
            let deal = async move {
                let mut next = 0_usize;
                while let Some(row) = outgoing.recv().await {
                    next = next.wrapping_add(1);
                    let lane = dialect.order(&row).map_or(next, |order| lane_of(&order)) % LANES;
                    if lanes[lane].send(row).await.is_err() {
                        return;
                    }
                }
            };
            tasks.spawn(cut.run_until_cancelled_owned(deal));
            Ok(link)
        })
    }

    fn window(&self, in_flight_max: usize) -> usize {
        in_flight_max.min(WINDOW)
    }

    fn name_of(&self, row: &Row) -> String {
        row.event_id.clone()
    }
}

fn lane_of(order: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    order.hash(&mut hasher);
    usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0)
}
