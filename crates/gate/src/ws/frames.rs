//! Frames, taken apart and put together. A payload is bytes here, whatever its frame calls it.
//!
//! A message over the limit is read and thrown away, so that the next one is found; only one that
//! goes on beyond the excess limit, or breaks the protocol, cannot be passed over.

use std::io::{self, Cursor};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// So much is made room for at a time, and used up before the next: what has been read stays in
/// memory as long as any event of it is in work.
const READ_BYTES: usize = 64 * 1024;
const READ_BYTES_MIN: usize = 4 * 1024;

/// The longest payload of a control frame.
const CONTROL_BYTES_MAX: u64 = 125;

/// What a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A text message, which may be anything.
    Text(Bytes),
    /// A binary message.
    Binary,
    /// A message over the limit, of which nothing is kept.
    TooLarge,
    Ping(Bytes),
    Pong,
    /// The peer says goodbye, perhaps with a code.
    Close(Option<u16>),
}

/// Why no more messages can be read.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer does not speak the protocol.
    Protocol(&'static str),
    /// A message goes on for longer than anybody would read.
    Endless,
    /// The connection has ended.
    Gone(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// How much a message may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Larger ones are passed over.
    pub(super) message_max: usize,
    /// So much of them, and no more.
    pub(super) excess_max: usize,
}

/// A frame whose payload is being read.
struct Open {
    opcode: OpCode,
    is_final: bool,
    mask: [u8; 4],
    /// Bytes of payload still to come.
    left: u64,
    /// How far the mask is turned.
    turned: usize,
}

/// A message whose last frame has not been read yet.
#[derive(Default)]
struct Part {
    is_text: bool,
    bytes: BytesMut,
    /// Bytes that were thrown away; the message is over the limit.
    excess: Option<usize>,
}

/// Reads messages. Nothing is lost when a read is dropped.
pub(super) struct Frames<R> {
    io: R,
    sizes: Sizes,
    buf: BytesMut,
    open: Option<Open>,
    part: Option<Part>,
    /// When the message that is not whole yet began to arrive.
    begun: Option<Instant>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(io: R, sizes: Sizes) -> Self {
        Self { io, sizes, buf: BytesMut::new(), open: None, part: None, begun: None }
    }

    /// The rest of the connection, for whoever has no use for messages any more.
    pub(super) fn into_inner(self) -> R {
        self.io
    }

    /// Reads on: the next message, or `None` when more has come of it and it is not whole yet.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Broken> {
        if let Some(message) = self.ready()? {
            return Ok(Some(message));
        }
        if self.buf.capacity() - self.buf.len() < READ_BYTES_MIN {
            self.buf.reserve(READ_BYTES);
        }
        if self.io.read_buf(&mut self.buf).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.begun.get_or_insert_with(Instant::now);
        self.ready()
    }

    /// The next message that has been read already.
    pub(super) fn ready(&mut self) -> Result<Option<Message>, Broken> {
        loop {
            if self.open.is_none() && !self.open_frame()? {
                return Ok(None);
            }
            let Some(open) = &self.open else { return Ok(None) };
            let message = match open.opcode {
                OpCode::Control(control) => self.control(control),
                OpCode::Data(_) => self.data()?,
            };
            if let Some(message) = message {
                // A ping between two frames of a message gives it no more time.
                if self.part.is_none() {
                    self.begun = (!self.buf.is_empty()).then(Instant::now);
                }
                return Ok(Some(message));
            }
            if self.open.is_some() {
                return Ok(None);
            }
        }
    }

    /// When the message that is not whole yet began to arrive, if there is one.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Reading goes on after a pause that was ours.
    pub(super) fn resume(&mut self) {
        self.begun = self.begun.map(|_| Instant::now());
    }

    /// Takes the head of the next frame; `false` when it is not there yet.
    fn open_frame(&mut self) -> Result<bool, Broken> {
        let mut cursor = Cursor::new(&self.buf[..]);
        let parsed = FrameHeader::parse(&mut cursor);
        let parsed = parsed.map_err(|_| Broken::Protocol("a frame has an unknown kind"))?;
        let Some((head, left)) = parsed else { return Ok(false) };
        let length = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let Some(mask) = head.mask else {
            return Err(Broken::Protocol("a frame of a client must be masked"));
        };
        if head.rsv1 || head.rsv2 || head.rsv3 {
            return Err(Broken::Protocol("no extension was agreed on"));
        }
        match head.opcode {
            OpCode::Control(_) if left > CONTROL_BYTES_MAX || !head.is_final => {
                return Err(Broken::Protocol("a control frame is short and whole"));
            }
            OpCode::Control(_) => {}
            OpCode::Data(kind) => self.begin_part(kind, left)?,
        }
        drop(self.buf.split_to(length));
        let (opcode, is_final) = (head.opcode, head.is_final);
        self.open = Some(Open { opcode, is_final, mask, left, turned: 0 });
        Ok(true)
    }

    /// A frame with so much data begins or continues a message.
    fn begin_part(&mut self, kind: Data, length: u64) -> Result<(), Broken> {
        let is_more = kind == Data::Continue;
        if is_more != self.part.is_some() {
            return Err(Broken::Protocol("messages are not mixed with each other"));
        }
        let is_text = kind == Data::Text;
        let part = self.part.get_or_insert_with(|| Part { is_text, ..Part::default() });
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if part.excess.is_none() && part.bytes.len().saturating_add(length) > self.sizes.message_max
        {
            part.excess = Some(std::mem::take(&mut part.bytes).len());
        }
        if let Some(excess) = &mut part.excess {
            *excess = excess.saturating_add(length);
            if *excess > self.sizes.message_max.saturating_add(self.sizes.excess_max) {
                return Err(Broken::Endless);
            }
        }
        Ok(())
    }

    /// A control frame, once all of it is there.
    fn control(&mut self, control: Control) -> Option<Message> {
        let open = self.open.as_ref()?;
        let length = usize::try_from(open.left).unwrap_or(usize::MAX);
        if self.buf.len() < length {
            return None;
        }
        let mut payload = self.buf.split_to(length);
        unmask(&mut payload, open.mask, 0);
        self.open = None;
        Some(match control {
            Control::Ping => Message::Ping(payload.freeze()),
            Control::Pong | Control::Reserved(_) => Message::Pong,
            Control::Close => {
                let code = payload.first_chunk::<2>();
                Message::Close(code.map(|code| u16::from_be_bytes(*code)))
            }
        })
    }

    /// What has come of a data frame; a message when it was the last of one.
    fn data(&mut self) -> Result<Option<Message>, Broken> {
        let (Some(open), Some(part)) = (&mut self.open, &mut self.part) else {
            return Err(Broken::Protocol("messages are not mixed with each other"));
        };
        let here = usize::try_from(open.left).unwrap_or(usize::MAX).min(self.buf.len());
        let mut piece = self.buf.split_to(here);
        open.left -= here as u64;
        if part.excess.is_none() {
            unmask(&mut piece, open.mask, open.turned);
            open.turned = (open.turned + here) % 4;
            // A message in one piece, which most are, is not copied.
            if part.bytes.is_empty() {
                part.bytes = piece;
            } else {
                part.bytes.extend_from_slice(&piece);
            }
        }
        if open.left > 0 {
            return Ok(None);
        }
        let is_last = open.is_final;
        self.open = None;
        Ok(self.part.take_if(|_| is_last).map(|part| match part {
            Part { excess: Some(_), .. } => Message::TooLarge,
            Part { is_text: true, bytes, .. } => Message::Text(bytes.freeze()),
            Part { is_text: false, .. } => Message::Binary,
        }))
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], turned: usize) {
    let mask: [u8; 4] = std::array::from_fn(|at| mask[(at + turned) % 4]);
    let mut chunks = bytes.chunks_exact_mut(4);
    for chunk in &mut chunks {
        for (byte, mask) in chunk.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in chunks.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Puts a frame of ours into `out`.
pub(super) fn put(out: &mut BytesMut, opcode: OpCode, payload: &[u8]) {
    let head = FrameHeader { opcode, ..FrameHeader::default() };
    out.reserve(head.len(payload.len() as u64) + payload.len());
    // Writing into memory that grows does not fail.
    head.format(payload.len() as u64, &mut out.writer()).unwrap_or_default();
    out.extend_from_slice(payload);
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
