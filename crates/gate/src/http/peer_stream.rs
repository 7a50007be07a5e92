//! Byte stream of a connection: plain TCP, TLS, or the Unix socket in the data folder.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use admit_core::Code;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use super::io_timeouts::{LINGER, LINGER_BYTES_MAX, complete_response};
use super::response;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::tls::Tls;

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A connection before its TLS handshake.
pub(super) enum AcceptedSocket {
    Tcp(TcpStream, SocketAddr),
    Socket(UnixStream),
}

impl AcceptedSocket {
    pub(super) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(_, address) => Peer::At(*address),
            Self::Socket(_) => Peer::Owner,
        }
    }
}

/// A connection after its TLS handshake, if it has one.
pub(super) enum PeerStream {
    Plain(TcpStream),
    Socket(UnixStream),
    /// Boxed because it is large.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Reason why a TLS handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("timeout during the TLS handshake")]
    TooSlow,
    #[error("plain text on a TLS port")]
    PlainText,
    #[error("TLS handshake failed: {0}")]
    Failed(#[from] io::Error),
}

/// Performs the TLS handshake, if this port has TLS, within `limits.header_read_ms_max`.
pub(super) async fn tls_handshake(
    stream: AcceptedSocket,
    tls: Option<&Tls>,
    limits: &Limits,
) -> Result<PeerStream, HandshakeError> {
    let (stream, tls) = match (stream, tls) {
        (AcceptedSocket::Socket(stream), _) => return Ok(PeerStream::Socket(stream)),
        (AcceptedSocket::Tcp(stream, _), None) => return Ok(PeerStream::Plain(stream)),
        (AcceptedSocket::Tcp(stream, _), Some(tls)) => (stream, tls),
    };
    let until = Instant::now() + limits.header_read_max();
    let mut first = [0];
    let peeked = timeout_at(until, stream.peek(&mut first)).await;
    let peeked = peeked.map_err(|_| HandshakeError::TooSlow)??;
    if peeked == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    if first[0] != HANDSHAKE {
        // The connection ends, whether the peer reads the error or not.
        timeout(LINGER, refuse_plain_text(stream)).await.unwrap_or(Ok(())).unwrap_or_default();
        return Err(HandshakeError::PlainText);
    }
    let accepted = timeout_at(until, tls.acceptor().accept(stream)).await;
    let accepted = accepted.map_err(|_| HandshakeError::TooSlow)??;
    Ok(PeerStream::Tls(Box::new(accepted)))
}

/// Sends an error response in plain text, then discards what the peer is still sending.
async fn refuse_plain_text(mut stream: TcpStream) -> io::Result<()> {
    let message = "this port requires TLS: use https";
    let reply = response::general(Code::InvalidRequest, message, 0);
    stream.write_all(&complete_response("400 Bad Request", &reply.body)).await?;
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

impl AsyncRead for PeerStream {
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

impl AsyncWrite for PeerStream {
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
