//! One open socket: reads while its lane has room, writes answers as they come, ends in good order.
//!
//! Everything happens in one task. While nothing may be read, because too much is in work or the
//! peer does not take its answers, the clocks that judge the peer's silence stand still.

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

use super::frames::{Broken, Frames, Message, Sizes, put};
use crate::gate::Gate;
use crate::lane::Lane;
use crate::metrics::OneOpen;

/// Answers that may wait for the peer to take them; more of them, and nothing is read.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// A quiet peer is asked for a sign of life so often, or thrice within `idle_ms_max`.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long the peer may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why we close, in the protocol's numbers.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const POLICY: u16 = 1008;
const TOO_BIG: u16 = 1009;

/// What a socket needs to know.
pub(crate) struct Session {
    pub(crate) gate: Arc<Gate>,
    pub(crate) lane: Lane,
    /// The connection is cut off.
    pub(crate) cutting: CancellationToken,
}

/// The answers on their way to the peer.
struct Out<W> {
    io: W,
    bytes: BytesMut,
    is_flushed: bool,
}

impl<W: AsyncWrite + Unpin> Out<W> {
    fn has_some(&self) -> bool {
        !self.bytes.is_empty() || !self.is_flushed
    }

    fn put(&mut self, opcode: OpCode, payload: &[u8]) {
        put(&mut self.bytes, opcode, payload);
    }

    /// Writes some. A peer that takes nothing for too long is an error; nothing is written twice
    /// when this is dropped.
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

/// How a session is to end: nothing more is read, what was read is answered, then this is said.
type Ending = Option<(u16, &'static str)>;

/// Carries a socket to its end. Whatever was handed to the ledger is finished even if the peer is
/// gone by then.
pub(crate) async fn run<IO: AsyncRead + AsyncWrite>(session: Session, io: IO) {
    let Session { gate, lane, cutting } = session;
    let _open = OneOpen::new(&gate, |metrics| &metrics.websockets);
    let (input, output) = tokio::io::split(io);
    let sizes =
        Sizes { message_max: gate.limits.body_bytes_max, excess_max: gate.limits.excess_bytes_max };
    let out = Out { io: output, bytes: BytesMut::new(), is_flushed: true };
    let frames = Frames::new(input, sizes);
    let mut socket = Socket { gate, lane, frames, out, heard: Instant::now(), pinged: false };
    let ended = tokio::select! {
        ended = socket.converse() => ended,
        () = cutting.cancelled() => return,
    };
    match ended {
        Ok(ending) => socket.close(ending).await,
        Err(error) => tracing::debug!(%error, "a websocket ended early"),
    }
}

struct Socket<IO> {
    gate: Arc<Gate>,
    lane: Lane,
    frames: Frames<ReadHalf<IO>>,
    out: Out<WriteHalf<IO>>,
    /// When something last came.
    heard: Instant,
    /// Whether a sign of life was asked for since.
    pinged: bool,
}

impl<IO: AsyncRead + AsyncWrite> Socket<IO> {
    /// Reads and answers until somebody wants to end it and everything is answered.
    async fn converse(&mut self) -> std::io::Result<Ending> {
        let mut ending: Option<Ending> = None;
        let mut was_reading = true;
        loop {
            if let Some(ending) = ending.filter(|_| self.lane.is_empty()) {
                return Ok(ending);
            }
            let may_read =
                ending.is_none() && self.lane.has_room() && self.out.bytes.len() < OUT_BYTES_MAX;
            if may_read && !was_reading {
                self.heard = Instant::now();
                self.frames.resume();
            }
            was_reading = may_read;
            let due = self.due();
            tokio::select! {
                biased;
                written = self.out.write(), if self.out.has_some() => written?,
                replies = self.lane.answers(), if !self.lane.is_empty() => {
                    for reply in replies {
                        self.out.put(OpCode::Data(Data::Text), &reply.body);
                    }
                }
                come = self.frames.next(), if may_read => {
                    ending = self.heard_of(come);
                    self.lane.send_off();
                }
                () = sleep_until(due), if may_read => ending = self.overdue(),
                () = self.gate.drain.cancelled(), if ending.is_none() => {
                    ending = Some(Some((GOING_AWAY, "the gate is shutting down")));
                }
            }
        }
    }

    /// Takes what has come: a message, and whatever else has been read with it.
    fn heard_of(&mut self, come: Result<Option<Message>, Broken>) -> Option<Ending> {
        self.heard = Instant::now();
        self.pinged = false;
        let mut come = come;
        loop {
            let ending = match come {
                Ok(Some(message)) => self.take(message),
                Ok(None) => return None,
                Err(broken) => {
                    if matches!(broken, Broken::Endless) {
                        self.take(Message::TooLarge);
                    }
                    Some(goodbye(&broken))
                }
            };
            if ending.is_some() || !self.lane.has_room() {
                return ending;
            }
            come = self.frames.ready();
        }
    }

    fn take(&mut self, message: Message) -> Option<Ending> {
        let refused = match message {
            Message::Text(body) => self.lane.take(body),
            Message::Binary => {
                let message = "it must travel in a text frame";
                Some(self.lane.refuse(&[], Code::InvalidEnvelope, message))
            }
            Message::TooLarge => {
                let message = "the event is larger than this door takes";
                Some(self.lane.refuse(&[], Code::BodyTooLarge, message))
            }
            Message::Ping(payload) => {
                self.out.put(OpCode::Control(Control::Pong), &payload);
                None
            }
            Message::Pong => None,
            Message::Close(code) => return Some(Some((answer_to(code), ""))),
        };
        if let Some(reply) = refused {
            self.out.put(OpCode::Data(Data::Text), &reply.body);
        }
        None
    }

    /// When the peer has been silent for so long that something is to be done about it.
    fn due(&self) -> Instant {
        let limits = &self.gate.limits;
        let silent = if self.pinged { limits.idle_max() } else { self.ping_every() };
        let whole = self.frames.begun().map(|begun| begun + limits.body_read_max());
        whole.map_or(self.heard + silent, |whole| whole.min(self.heard + silent))
    }

    fn ping_every(&self) -> Duration {
        PING_EVERY.min(self.gate.limits.idle_max() / 3)
    }

    fn overdue(&mut self) -> Option<Ending> {
        let now = Instant::now();
        let limits = &self.gate.limits;
        if self.frames.begun().is_some_and(|begun| now >= begun + limits.body_read_max()) {
            return Some(Some((POLICY, "a message did not arrive in time")));
        }
        if now >= self.heard + limits.idle_max() {
            return Some(Some((GOING_AWAY, "nothing was heard for too long")));
        }
        if !self.pinged && now >= self.heard + self.ping_every() {
            self.pinged = true;
            self.out.put(OpCode::Control(Control::Ping), b"");
        }
        None
    }

    /// Says goodbye, and waits a moment for the peer to do the same.
    async fn close(mut self, ending: Ending) {
        if let Some((code, reason)) = ending {
            let payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
            self.out.put(OpCode::Control(Control::Close), &payload);
        }
        let write_max = self.gate.limits.write_max();
        let written = timeout(write_max, async {
            while self.out.has_some() {
                self.out.write().await?;
            }
            self.out.io.shutdown().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            tracing::debug!("a websocket's peer did not wait for the end");
            return;
        }
        let mut io = self.frames.into_inner();
        let mut scrap = [0; 4 * 1024];
        // Until the peer has hung up too: whoever hangs up on a sender may take back what it said.
        let quiet = async { while matches!(io.read(&mut scrap).await, Ok(1..)) {} };
        timeout(GOODBYE, quiet).await.unwrap_or_default();
    }
}

/// The code that answers a goodbye: the peer's own, where it is one that may be sent.
fn answer_to(code: Option<u16>) -> u16 {
    match code {
        None => NORMAL,
        Some(code @ (1000..=1003 | 1007..=1014 | 3000..=4999)) => code,
        Some(_) => PROTOCOL_ERROR,
    }
}

/// What is said to a peer that cannot be read any more.
fn goodbye(broken: &Broken) -> Ending {
    match broken {
        Broken::Protocol(reason) => Some((PROTOCOL_ERROR, reason)),
        Broken::Endless => Some((TOO_BIG, "a message is larger than anybody would read")),
        Broken::Gone(error) => {
            tracing::debug!(%error, "a websocket's peer is gone");
            None
        }
    }
}
