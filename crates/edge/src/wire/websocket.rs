//! Rows over a WebSocket: one envelope per text frame, answers in any order.

use std::fmt;

use ::http::{Request, StatusCode, header};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::task::TaskTracker;

use super::connect::{Endpoint, Protocol, Stream};
use super::{BoxFuture, Ends, Heard, Identity, Link, Wire, answer};
use crate::store::Row;

/// Answers are small.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Rows that are written before the connection is flushed, at most.
const FRAMES_AT_ONCE: usize = 64;

/// The skyra door over a WebSocket.
#[derive(Debug)]
pub struct WebSocketWire {
    gate: Endpoint,
    path: String,
    identity: Identity,
}

impl WebSocketWire {
    /// The door at `path` of `gate`.
    pub fn new(gate: Endpoint, path: &str, identity: Identity) -> Self {
        Self { gate, path: path.to_owned(), identity }
    }

    async fn open(&self) -> Result<WebSocketStream<Box<dyn Stream>>, String> {
        let stream = self.gate.connect(Protocol::Http1).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        let mut request = Request::get(format!(
            "{}://{}{}{}",
            if self.gate.scheme() == "https" { "wss" } else { "ws" },
            self.gate.authority,
            self.gate.prefix,
            self.path
        ))
        .header(header::HOST, &self.gate.authority)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, generate_key());
        for (name, value) in self.identity.headers() {
            request = request.header(name, value);
        }
        let request =
            request.body(()).map_err(|error| format!("no request can be made: {error}"))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(ANSWER_BYTES_MAX))
            .max_frame_size(Some(ANSWER_BYTES_MAX));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => {
                Err(refused(response.status(), response.body().as_deref().unwrap_or_default()))
            }
            Err(error) => Err(format!("cannot connect: {error}")),
        }
    }
}

/// Why the door did not open, with what it said.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> String {
    let said = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
    format!("the gate did not open the door: status {} {said}", status.as_u16())
}

impl fmt::Display for WebSocketWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by websocket", self.gate)
    }
}

impl Wire for WebSocketWire {
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<Link, String>> {
        Box::pin(async move {
            let socket = self.open().await?;
            let (link, ends) = Link::with_room(in_flight_max);
            tasks.spawn(async move {
                let Ends { incoming, cut, .. } = &ends;
                let (incoming, cut) = (incoming.clone(), cut.clone());
                let reason = tokio::select! {
                    reason = carry(socket, ends) => reason,
                    () = cut.cancelled() => return,
                };
                incoming.send(Err(reason)).await.unwrap_or_default();
            });
            Ok(link)
        })
    }

    fn name_of(&self, row: &Row) -> String {
        answer::skyra_name(&row.payload_json).unwrap_or_else(|| row.event_id.clone())
    }
}

/// Carries rows out and answers in, until the connection ends; returns why it did. Answers are read
/// also while rows do not get out: on a slow network the first are answered long before the last
/// are written.
async fn carry(socket: WebSocketStream<Box<dyn Stream>>, ends: Ends) -> String {
    let (sink, stream) = socket.split();
    let pinged = Notify::new();
    tokio::select! {
        reason = write(sink, ends.outgoing, &pinged) => reason,
        reason = read(stream, &ends.incoming, &pinged) => reason,
    }
}

type Sink = SplitSink<WebSocketStream<Box<dyn Stream>>, Message>;

async fn write(mut sink: Sink, mut outgoing: Receiver<Row>, pinged: &Notify) -> String {
    let mut rows = Vec::with_capacity(FRAMES_AT_ONCE);
    loop {
        tokio::select! {
            taken = outgoing.recv_many(&mut rows, FRAMES_AT_ONCE) => {
                if taken == 0 {
                    return match sink.close().await {
                        Ok(()) => "closed".to_owned(),
                        Err(error) => error.to_string(),
                    };
                }
            }
            // Pings are answered by the library with the next write, which must happen.
            () = pinged.notified() => {}
        }
        for row in rows.drain(..) {
            let frame = Message::Text(Utf8Bytes::from(row.payload_json));
            if let Err(error) = sink.feed(frame).await {
                return format!("the connection broke: {error}");
            }
        }
        if let Err(error) = sink.flush().await {
            return format!("the connection broke: {error}");
        }
    }
}

async fn read(
    mut stream: SplitStream<WebSocketStream<Box<dyn Stream>>>,
    incoming: &Sender<Result<Heard, String>>,
    pinged: &Notify,
) -> String {
    loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                let (name, said) = answer::skyra(text.as_bytes(), None);
                if incoming.send(Ok(Heard { name, said })).await.is_err() {
                    return "closed".to_owned();
                }
            }
            Some(Ok(Message::Close(frame))) => {
                let said = frame.map(|frame| format!(": {}", frame.reason)).unwrap_or_default();
                return format!("the gate closed the connection{said}");
            }
            Some(Ok(Message::Ping(_))) => pinged.notify_one(),
            Some(Ok(Message::Binary(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return format!("the connection broke: {error}"),
            None => return "the gate closed the connection".to_owned(),
        }
    }
}
