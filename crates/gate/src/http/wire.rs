//! A peer's bytes, in the clear, through TLS or over the socket in the data folder; the rest of the
//! house does not care which.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use admit_core::Code;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use super::answer;
use super::watch::{LINGER, LINGER_BYTES_MAX, whole_answer};
use crate::limits::Limits;
use crate::peer::Peer;
use crate::tls::Tls;

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A connection nothing was said on yet.
pub(super) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Socket(UnixStream),
}

impl Accepted {
    pub(super) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(_, address) => Peer::At(*address),
            Self::Socket(_) => Peer::Owner,
        }
    }
}

/// A connection whose bytes can be read and written.
pub(super) enum Wire {
    Plain(TcpStream),
    /// It never leaves this machine.
    Socket(UnixStream),
    /// In a box, because it is large and most gates have none.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a connection never became a wire.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the handshake did not end in time")]
    TooSlow,
    #[error("plain text was sent to a port that speaks TLS")]
    PlainText,
    #[error("the handshake failed: {0}")]
    Failed(#[from] io::Error),
}

/// Agrees with the peer on how bytes travel, within the time for a head.
pub(super) async fn agree(
    stream: Accepted,
    tls: Option<&Tls>,
    limits: &Limits,
) -> Result<Wire, HandshakeError> {
    let (stream, tls) = match (stream, tls) {
        (Accepted::Socket(stream), _) => return Ok(Wire::Socket(stream)),
        (Accepted::Tcp(stream, _), None) => return Ok(Wire::Plain(stream)),
        (Accepted::Tcp(stream, _), Some(tls)) => (stream, tls),
    };
    let until = Instant::now() + limits.header_read_max();
    let mut first = [0];
    let peeked = timeout_at(until, stream.peek(&mut first)).await;
    let peeked = peeked.map_err(|_| HandshakeError::TooSlow)??;
    if peeked == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    if first[0] != HANDSHAKE {
        // The peer learns why, or it is gone already; the connection ends either way.
        timeout(LINGER, say_why(stream)).await.unwrap_or(Ok(())).unwrap_or_default();
        return Err(HandshakeError::PlainText);
    }
    let accepted = timeout_at(until, tls.acceptor().accept(stream)).await;
    let accepted = accepted.map_err(|_| HandshakeError::TooSlow)??;
    Ok(Wire::Tls(Box::new(accepted)))
}

/// Answers a request in plain text, and listens until the peer has sent what it had to send.
async fn say_why(mut stream: TcpStream) -> io::Result<()> {
    let message = "this port speaks TLS: use https";
    let reply = answer::general(Code::InvalidRequest, message, 0);
    stream.write_all(&whole_answer("400 Bad Request", &reply.body)).await?;
    stream.shutdown().await?;
    let mut scrap = [0; 8 * 1024];
    let mut left = LINGER_BYTES_MAX;
    while left > 0 {
        match stream.read(&mut scrap).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Socket(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Socket(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Socket(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Socket(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
