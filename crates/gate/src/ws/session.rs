//! One open WebSocket: reads while its session has room, writes replies, and closes in order.
//!
//! Everything runs in one task. While reading is paused, because too much is in flight or the peer reads
//! no replies, the idle and message timeouts are paused too.

use std::sync::Arc;
use std::time::Duration;

use admit_core::Code;
use bytes::BytesMut;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tokio_util::sync::CancellationToken;

use super::frames::{FrameError, FrameReader, MessageLimits, WsMessage, write_frame};
use crate::gate::Gate;
use crate::metrics::OpenGuard;
use crate::pipelined_session::PipelinedSession;

/// Buffered reply bytes above which reading stops.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Ping interval to a silent peer; at most a third of `idle_ms_max`.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum wait for the peer's close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Close codes of RFC 6455.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const POLICY: u16 = 1008;
const TOO_BIG: u16 = 1009;

/// Context of an open WebSocket.
pub(crate) struct SocketContext {
    pub(crate) gate: Arc<Gate>,
    pub(crate) session: PipelinedSession,
    /// Cancelled to abort the connection at shutdown.
    pub(crate) cutting: CancellationToken,
}

/// Buffered output to the peer.
struct OutputBuffer<W> {
    io: W,
    bytes: BytesMut,
    is_flushed: bool,
}

impl<W: AsyncWrite + Unpin> OutputBuffer<W> {
    fn is_pending(&self) -> bool {
        !self.bytes.is_empty() || !self.is_flushed
    }

    fn put(&mut self, opcode: OpCode, payload: &[u8]) {
        write_frame(&mut self.bytes, opcode, payload);
    }

    /// Writes part of the buffer. The write timeout of the stream applies. Cancel safe.
    async fn write(&mut self) -> std::io::Result<()> {
        if !self.bytes.is_empty() {
            self.is_flushed = false;
            return self.io.write_buf(&mut self.bytes).await.map(drop);
        }
        self.io.flush().await?;
        self.is_flushed = true;
        Ok(())
    }
}

/// Close code and reason. Sent after reading has stopped and all events have their reply.
type CloseFrame = Option<(u16, &'static str)>;

/// Serves a WebSocket until it ends. Writes handed to the ledger are completed even if the peer
/// disconnects.
pub(crate) async fn run<IO: AsyncRead + AsyncWrite>(context: SocketContext, io: IO) {
    let SocketContext { gate, session, cutting } = context;
    let _open = OpenGuard::new(&gate, |metrics| &metrics.websockets);
    let (input, output) = tokio::io::split(io);
    let limits = MessageLimits {
        message_max: gate.limits.body_bytes_max,
        excess_max: gate.limits.excess_bytes_max,
    };
    let out = OutputBuffer { io: output, bytes: BytesMut::new(), is_flushed: true };
    let frames = FrameReader::new(input, limits);
    let mut socket =
        Socket { gate, session, frames, out, last_received_at: Instant::now(), is_pinged: false };
    let ended = tokio::select! {
        ended = socket.serve() => ended,
        () = cutting.cancelled() => return,
    };
    match ended {
        Ok(ending) => socket.close(ending).await,
        Err(error) => tracing::debug!(%error, "websocket failed"),
    }
}

struct Socket<IO> {
    gate: Arc<Gate>,
    session: PipelinedSession,
    frames: FrameReader<ReadHalf<IO>>,
    out: OutputBuffer<WriteHalf<IO>>,
    /// Time of the last received data.
    last_received_at: Instant,
    /// Whether a ping was sent since then.
    is_pinged: bool,
}

impl<IO: AsyncRead + AsyncWrite> Socket<IO> {
    /// Reads and replies until either side closes and all events have their reply.
    async fn serve(&mut self) -> std::io::Result<CloseFrame> {
        let mut ending: Option<CloseFrame> = None;
        let mut was_reading = true;
        loop {
            if let Some(ending) = ending.filter(|_| self.session.is_empty()) {
                return Ok(ending);
            }
            let may_read = ending.is_none()
                && self.session.has_room()
                && self.out.bytes.len() < OUTPUT_BYTES_MAX;
            if may_read && !was_reading {
                self.last_received_at = Instant::now();
                self.frames.restart_timeout();
            }
            was_reading = may_read;
            let deadline = self.deadline();
            tokio::select! {
                biased;
                written = self.out.write(), if self.out.is_pending() => written?,
                replies = self.session.next_replies(), if !self.session.is_empty() => {
                    for reply in replies {
                        self.out.put(OpCode::Data(Data::Text), &reply.body);
                    }
                }
                received = self.frames.next(), if may_read => {
                    ending = self.on_message(received);
                    self.session.start_batch();
                }
                () = sleep_until(deadline), if may_read => ending = self.on_deadline(),
                () = self.gate.drain.cancelled(), if ending.is_none() => {
                    ending = Some(Some((GOING_AWAY, "the gate is shutting down")));
                }
            }
        }
    }

    /// Handles a message, and all further ones that have already been read.
    fn on_message(
        &mut self,
        received: Result<Option<WsMessage>, FrameError>,
    ) -> Option<CloseFrame> {
        self.last_received_at = Instant::now();
        self.is_pinged = false;
        let mut received = received;
        loop {
            let ending = match received {
                Ok(Some(message)) => self.handle(message),
                Ok(None) => return None,
                Err(error) => {
                    if matches!(error, FrameError::ExcessTooLarge) {
                        self.handle(WsMessage::TooLarge);
                    }
                    Some(close_frame(&error))
                }
            };
            if ending.is_some() || !self.session.has_room() {
                return ending;
            }
            received = self.frames.next_buffered();
        }
    }

    fn handle(&mut self, message: WsMessage) -> Option<CloseFrame> {
        let refused = match message {
            WsMessage::Text(body) => self.session.submit(body),
            WsMessage::Binary => {
                let message = "an event must be sent in a text frame";
                Some(self.session.refuse(&[], Code::InvalidEnvelope, message))
            }
            WsMessage::TooLarge => {
                let message = "the event exceeds limits.body_bytes_max";
                Some(self.session.refuse(&[], Code::BodyTooLarge, message))
            }
            WsMessage::Ping(payload) => {
                self.out.put(OpCode::Control(Control::Pong), &payload);
                None
            }
            WsMessage::Pong => None,
            WsMessage::Close(code) => return Some(Some((close_code(code), ""))),
        };
        if let Some(reply) = refused {
            self.out.put(OpCode::Data(Data::Text), &reply.body);
        }
        None
    }

    /// Time of the next ping or timeout.
    fn deadline(&self) -> Instant {
        let limits = &self.gate.limits;
        let silence_max = if self.is_pinged { limits.idle_max() } else { self.ping_interval() };
        let message =
            self.frames.started_at().map(|started_at| started_at + limits.body_read_max());
        let silence = self.last_received_at + silence_max;
        message.map_or(silence, |message| message.min(silence))
    }

    fn ping_interval(&self) -> Duration {
        PING_INTERVAL.min(self.gate.limits.idle_max() / 3)
    }

    fn on_deadline(&mut self) -> Option<CloseFrame> {
        let now = Instant::now();
        let limits = &self.gate.limits;
        if self
            .frames
            .started_at()
            .is_some_and(|started_at| now >= started_at + limits.body_read_max())
        {
            return Some(Some((POLICY, "message timeout")));
        }
        if now >= self.last_received_at + limits.idle_max() {
            return Some(Some((GOING_AWAY, "idle timeout")));
        }
        if !self.is_pinged && now >= self.last_received_at + self.ping_interval() {
            self.is_pinged = true;
            self.out.put(OpCode::Control(Control::Ping), b"");
        }
        None
    }

    /// Sends a close frame, and waits for the close of the peer up to a timeout.
    async fn close(mut self, close: CloseFrame) {
        if let Some((code, reason)) = close {
            let payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
            self.out.put(OpCode::Control(Control::Close), &payload);
        }
        let write_max = self.gate.limits.write_max();
        let written = timeout(write_max, async {
            while self.out.is_pending() {
                self.out.write().await?;
            }
            self.out.io.shutdown().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            tracing::debug!("websocket peer disconnected before the close frame was written");
            return;
        }
        let mut io = self.frames.into_inner();
        let mut discarded = [0; 4 * 1024];
        // Drain until the peer closes too: closing with unread data would reset the connection and may
        // discard the last replies.
        let drained = async { while matches!(io.read(&mut discarded).await, Ok(1..)) {} };
        timeout(CLOSE_TIMEOUT, drained).await.unwrap_or_default();
    }
}

/// Close code of the reply to a close frame: the code of the peer, if it is a valid one.
fn close_code(code: Option<u16>) -> u16 {
    match code {
        None => NORMAL,
        Some(code @ (1000..=1003 | 1007..=1014 | 3000..=4999)) => code,
        Some(_) => PROTOCOL_ERROR,
    }
}

/// Close frame after a read error.
fn close_frame(error: &FrameError) -> CloseFrame {
    match error {
        FrameError::Protocol(reason) => Some((PROTOCOL_ERROR, reason)),
        FrameError::ExcessTooLarge => Some((TOO_BIG, "message too large")),
        FrameError::Disconnected(cause) => {
            tracing::debug!(%cause, "websocket peer disconnected");
            None
        }
    }
}
