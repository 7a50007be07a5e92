//! WebSocket transport: one envelope per text frame, replies in any order.

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

use super::connect::{ByteStream, Endpoint, Protocol};
use super::{BoxFuture, GateLink, LinkEnds, SenderIdentity, Wire, WireReply, reply_parser};
use crate::store::OutboxRow;

/// Maximum size of a reply.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Maximum rows written before the connection is flushed.
const FRAMES_PER_FLUSH: usize = 64;

/// The skyra door over a WebSocket.
#[derive(Debug)]
pub struct WebSocketWire {
    gate: Endpoint,
    path: String,
    identity: SenderIdentity,
}

impl WebSocketWire {
    /// The door at `path` of `gate`.
    pub fn new(gate: Endpoint, path: &str, identity: SenderIdentity) -> Self {
        Self { gate, path: path.to_owned(), identity }
    }

    async fn open(&self) -> Result<WebSocketStream<Box<dyn ByteStream>>, String> {
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
            request.body(()).map_err(|error| format!("failed to build the request: {error}"))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(REPLY_BYTES_MAX))
            .max_frame_size(Some(REPLY_BYTES_MAX));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => {
                Err(refusal_text(response.status(), response.body().as_deref().unwrap_or_default()))
            }
            Err(error) => Err(format!("cannot connect: {error}")),
        }
    }
}

/// Error text of a refused connection, with the response body.
pub(super) fn refusal_text(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
    format!("the gate refused the connection: status {} {text}", status.as_u16())
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
    ) -> BoxFuture<'a, Result<GateLink, String>> {
        Box::pin(async move {
            let socket = self.open().await?;
            let (link, link_ends) = GateLink::with_capacity(in_flight_max);
            tasks.spawn(async move {
                let LinkEnds { incoming, cancel, .. } = &link_ends;
                let (incoming, cancel) = (incoming.clone(), cancel.clone());
                let reason = tokio::select! {
                    reason = run_connection(socket, link_ends) => reason,
                    () = cancel.cancelled() => return,
                };
                incoming.send(Err(reason)).await.unwrap_or_default();
            });
            Ok(link)
        })
    }

    fn reply_name(&self, row: &OutboxRow) -> String {
        reply_parser::skyra_event_id(&row.payload_json).unwrap_or_else(|| row.event_id.clone())
    }
}

/// Sends rows and forwards replies until the connection ends. Returns the reason. Replies are read
/// also while writing is blocked: on a slow network the first are acknowledged long before the last
/// are written.
async fn run_connection(
    socket: WebSocketStream<Box<dyn ByteStream>>,
    link_ends: LinkEnds,
) -> String {
    let (sink, stream) = socket.split();
    let pinged = Notify::new();
    tokio::select! {
        reason = write(sink, link_ends.outgoing, &pinged) => reason,
        reason = read(stream, &link_ends.incoming, &pinged) => reason,
    }
}

type Sink = SplitSink<WebSocketStream<Box<dyn ByteStream>>, Message>;

async fn write(mut sink: Sink, mut outgoing: Receiver<OutboxRow>, pinged: &Notify) -> String {
    let mut rows = Vec::with_capacity(FRAMES_PER_FLUSH);
    loop {
        tokio::select! {
            taken = outgoing.recv_many(&mut rows, FRAMES_PER_FLUSH) => {
                if taken == 0 {
                    return match sink.close().await {
                        Ok(()) => "closed".to_owned(),
                        Err(error) => error.to_string(),
                    };
                }
            }
            // The library sends pongs with the next write, so a ping must trigger one.
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
    mut stream: SplitStream<WebSocketStream<Box<dyn ByteStream>>>,
    incoming: &Sender<Result<WireReply, String>>,
    pinged: &Notify,
) -> String {
    loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                let (name, result) = reply_parser::skyra(text.as_bytes(), None);
                if incoming.send(Ok(WireReply { name, result })).await.is_err() {
                    return "closed".to_owned();
                }
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map(|frame| format!(": {}", frame.reason)).unwrap_or_default();
                return format!("the gate closed the connection{reason}");
            }
            Some(Ok(Message::Ping(_))) => pinged.notify_one(),
            Some(Ok(Message::Binary(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return format!("the connection broke: {error}"),
            None => return "the gate closed the connection".to_owned(),
        }
    }
}
