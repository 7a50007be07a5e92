//! WebSocket frame parser and writer. Payloads are bytes; UTF-8 is not checked here.
//!
//! A message over the size limit is read and discarded, so that the next one can be read. Only a message
//! beyond the excess limit, or a protocol violation, ends the connection.

use std::io::{self, Cursor};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Size of a read buffer, and the free space below which the next one is allocated. A buffer stays in
/// memory as long as an event in it is in progress.
const READ_BYTES: usize = 64 * 1024;
const READ_BYTES_MIN: usize = 4 * 1024;

/// Maximum payload of a control frame.
const CONTROL_BYTES_MAX: u64 = 125;

/// A message from the peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WsMessage {
    /// A text message, not checked for UTF-8.
    Text(Bytes),
    /// A binary message.
    Binary,
    /// A message over the limit, whose payload was discarded.
    TooLarge,
    Ping(Bytes),
    Pong,
    /// Close frame of the peer, with its optional code.
    Close(Option<u16>),
}

/// Error that ends reading.
#[derive(Debug)]
pub(super) enum FrameError {
    /// Protocol violation.
    Protocol(&'static str),
    /// The discarded part of a message exceeds its own limit.
    ExcessTooLarge,
    /// The connection failed or was closed.
    Disconnected(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Disconnected(error)
    }
}

/// Size limits of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageLimits {
    /// Larger messages are discarded.
    pub(super) message_max: usize,
    /// Maximum number of discarded bytes of one message.
    pub(super) excess_max: usize,
}

/// A frame whose payload is being read.
struct OpenFrame {
    opcode: OpCode,
    is_final: bool,
    mask: [u8; 4],
    /// Remaining bytes of the payload.
    left: u64,
    /// Offset into the mask.
    mask_offset: usize,
}

/// A message whose last frame has not been read yet.
#[derive(Default)]
struct PartialMessage {
    is_text: bool,
    bytes: BytesMut,
    /// Number of discarded bytes, if the message is over the limit.
    excess: Option<usize>,
}

/// Reader of messages. Reads are cancel safe.
pub(super) struct FrameReader<R> {
    io: R,
    sizes: MessageLimits,
    buf: BytesMut,
    open: Option<OpenFrame>,
    part: Option<PartialMessage>,
    /// Arrival of the first byte of the incomplete message.
    started_at: Option<Instant>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(io: R, sizes: MessageLimits) -> Self {
        Self { io, sizes, buf: BytesMut::new(), open: None, part: None, started_at: None }
    }

    /// Returns the underlying connection.
    pub(super) fn into_inner(self) -> R {
        self.io
    }

    /// Reads once from the connection. Returns the next message, or `None` while it is incomplete.
    pub(super) async fn next(&mut self) -> Result<Option<WsMessage>, FrameError> {
        if let Some(message) = self.next_buffered()? {
            return Ok(Some(message));
        }
        if self.buf.capacity() - self.buf.len() < READ_BYTES_MIN {
            self.buf.reserve(READ_BYTES);
        }
        if self.io.read_buf(&mut self.buf).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.started_at.get_or_insert_with(Instant::now);
        self.next_buffered()
    }

    /// Returns the next message that has been read completely.
    pub(super) fn next_buffered(&mut self) -> Result<Option<WsMessage>, FrameError> {
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
                // A ping between two frames of a message does not extend its timeout.
                if self.part.is_none() {
                    self.started_at = (!self.buf.is_empty()).then(Instant::now);
                }
                return Ok(Some(message));
            }
            if self.open.is_some() {
                return Ok(None);
            }
        }
    }

    /// Arrival of the first byte of the incomplete message, if there is one.
    pub(super) fn started_at(&self) -> Option<Instant> {
        self.started_at
    }

    /// Restarts the timeout of the incomplete message, after reading was paused by backpressure.
    pub(super) fn restart_timeout(&mut self) {
        self.started_at = self.started_at.map(|_| Instant::now());
    }

    /// Parses the head of the next frame; `false` while it is incomplete.
    fn open_frame(&mut self) -> Result<bool, FrameError> {
        let mut cursor = Cursor::new(&self.buf[..]);
        let parsed = FrameHeader::parse(&mut cursor);
        let parsed = parsed.map_err(|_| FrameError::Protocol("unknown opcode"))?;
        let Some((head, left)) = parsed else { return Ok(false) };
        let length = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let Some(mask) = head.mask else {
            return Err(FrameError::Protocol("a client frame must be masked"));
        };
        if head.rsv1 || head.rsv2 || head.rsv3 {
            return Err(FrameError::Protocol(
                "reserved bits are set, but no extension was negotiated",
            ));
        }
        match head.opcode {
            OpCode::Control(_) if left > CONTROL_BYTES_MAX || !head.is_final => {
                return Err(FrameError::Protocol(
                    "a control frame must be at most 125 bytes and not fragmented",
                ));
            }
            OpCode::Control(_) => {}
            OpCode::Data(kind) => self.begin_part(kind, left)?,
        }
        drop(self.buf.split_to(length));
        let (opcode, is_final) = (head.opcode, head.is_final);
        self.open = Some(OpenFrame { opcode, is_final, mask, left, mask_offset: 0 });
        Ok(true)
    }

    /// Starts or continues a message with a frame of `length` bytes.
    fn begin_part(&mut self, kind: Data, length: u64) -> Result<(), FrameError> {
        let is_more = kind == Data::Continue;
        if is_more != self.part.is_some() {
            return Err(FrameError::Protocol("fragments of different messages are interleaved"));
        }
        let is_text = kind == Data::Text;
        let part = self
            .part
            .get_or_insert_with(|| PartialMessage { is_text, ..PartialMessage::default() });
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if part.excess.is_none() && part.bytes.len().saturating_add(length) > self.sizes.message_max
        {
            part.excess = Some(std::mem::take(&mut part.bytes).len());
        }
        if let Some(excess) = &mut part.excess {
            *excess = excess.saturating_add(length);
            if *excess > self.sizes.message_max.saturating_add(self.sizes.excess_max) {
                return Err(FrameError::ExcessTooLarge);
            }
        }
        Ok(())
    }

    /// Returns a control frame once it is complete.
    fn control(&mut self, control: Control) -> Option<WsMessage> {
        let open = self.open.as_ref()?;
        let length = usize::try_from(open.left).unwrap_or(usize::MAX);
        if self.buf.len() < length {
            return None;
        }
        let mut payload = self.buf.split_to(length);
        unmask(&mut payload, open.mask, 0);
        self.open = None;
        Some(match control {
            Control::Ping => WsMessage::Ping(payload.freeze()),
            Control::Pong | Control::Reserved(_) => WsMessage::Pong,
            Control::Close => {
                let code = payload.first_chunk::<2>();
                WsMessage::Close(code.map(|code| u16::from_be_bytes(*code)))
            }
        })
    }

    /// Consumes the received payload of a data frame; returns the message after its last frame.
    fn data(&mut self) -> Result<Option<WsMessage>, FrameError> {
        let (Some(open), Some(part)) = (&mut self.open, &mut self.part) else {
            return Err(FrameError::Protocol("fragments of different messages are interleaved"));
        };
        let available = usize::try_from(open.left).unwrap_or(usize::MAX).min(self.buf.len());
        let mut chunk_bytes = self.buf.split_to(available);
        open.left -= available as u64;
        if part.excess.is_none() {
            unmask(&mut chunk_bytes, open.mask, open.mask_offset);
            open.mask_offset = (open.mask_offset + available) % 4;
            // A message in a single read, the common case, is not copied.
            if part.bytes.is_empty() {
                part.bytes = chunk_bytes;
            } else {
                part.bytes.extend_from_slice(&chunk_bytes);
            }
        }
        if open.left > 0 {
            return Ok(None);
        }
        let is_last = open.is_final;
        self.open = None;
        Ok(self.part.take_if(|_| is_last).map(|part| match part {
            PartialMessage { excess: Some(_), .. } => WsMessage::TooLarge,
            PartialMessage { is_text: true, bytes, .. } => WsMessage::Text(bytes.freeze()),
            PartialMessage { is_text: false, .. } => WsMessage::Binary,
        }))
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], mask_offset: usize) {
    let mask: [u8; 4] = std::array::from_fn(|at| mask[(at + mask_offset) % 4]);
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

/// Appends a frame of the server to `out`.
pub(super) fn write_frame(out: &mut BytesMut, opcode: OpCode, payload: &[u8]) {
    let head = FrameHeader { opcode, ..FrameHeader::default() };
    out.reserve(head.len(payload.len() as u64) + payload.len());
    // Writing to a growing buffer does not fail.
    head.format(payload.len() as u64, &mut out.writer()).unwrap_or_default();
    out.extend_from_slice(payload);
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
