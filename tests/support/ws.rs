//! WebSocket client over a blocking socket that can also send malformed frames.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Read timeout; the gate guarantees a reply within 4 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

/// An open WebSocket.
pub(crate) struct Socket {
    stream: TcpStream,
}

/// A frame received from the gate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
}

impl Socket {
    /// Opens a socket; panics if the upgrade is refused.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::connect(address, &[]).unwrap_or_else(|response| panic!("upgrade refused: {response}"))
    }

    /// Opens a socket with extra headers; the error is the whole HTTP response.
    pub(crate) fn connect(address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self, String> {
        let mut stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(REPLY_TIMEOUT)).unwrap();
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET /v1/ingress HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 101 ") {
            assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
            return Ok(Self { stream });
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        Err(head + &String::from_utf8_lossy(&body))
    }

    /// Sends a frame with this first byte (flags and opcode).
    pub(crate) fn send(&mut self, first: u8, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(first, payload))
    }

    /// Sends raw bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends many text frames with one write.
    pub(crate) fn send_all(&mut self, bodies: &[String]) -> io::Result<()> {
        let frames: Vec<u8> = bodies.iter().flat_map(|body| frame(TEXT, body.as_bytes())).collect();
        self.stream.write_all(&frames)
    }

    /// Reads the next frame.
    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length)?;
                usize::from(u16::from_be_bytes(length))
            }
            short @ 0..126 => usize::from(short),
            other => panic!("masked or oversized frame from the gate: {other}"),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { first: head[0], payload })
    }

    /// Reads the next reply; skips pings.
    pub(crate) fn next_reply(&mut self) -> io::Result<Value> {
        loop {
            let frame = self.read()?;
            match frame.first {
                TEXT => return Ok(serde_json::from_slice(&frame.payload).unwrap()),
                PING => {}
                _ => return Err(io::Error::other(format!("{frame:?} is not a reply"))),
            }
        }
    }

    /// Sends one body and reads its reply.
    pub(crate) fn submit(&mut self, body: &[u8]) -> Value {
        self.send(TEXT, body).expect("the frame is sent");
        self.next_reply().expect("response from the gate")
    }
}

/// Builds a client frame. The mask is zero, so that a trace shows the payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let length = payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => frame.push(0x80 | short),
        (_, Ok(middle)) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}
