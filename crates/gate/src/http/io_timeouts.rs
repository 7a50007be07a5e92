//! Timeouts of a connection, and complete error responses where the HTTP library sends none.
//!
//! The HTTP library rejects an unreadable head with a bare status line, and closes a connection without a
//! response if the head times out. Some producers decide by the body and lose an event in both cases. This
//! layer adds the general error object to the former and sends a response in the latter. It also closes
//! connections that are idle or do not read, and keeps reading for a moment after the last response
//! (lingering close), so that a client that is still sending receives it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use admit_core::Code;
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::peer_stream::PeerStream;
use super::response;
use crate::limits::Limits;
use crate::unauthenticated_connections::ConnectionAuth;

/// Time and byte limits of a lingering close.
pub(super) const LINGER: Duration = Duration::from_secs(2);
pub(super) const LINGER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// State that the request handlers and the byte stream of a connection share.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    /// Number of requests so far.
    begun: AtomicU64,
    /// Whether the connection closes with a lingering close.
    linger: AtomicBool,
    opened: Instant,
    /// Arrival of the first byte of the next head, in microseconds since `opened`; 0 if unknown.
    head_micros: AtomicU64,
    /// Whether the connection was upgraded from HTTP to another protocol.
    upgraded: AtomicBool,
    auth: Arc<ConnectionAuth>,
}

/// Guard of one running request.
pub(super) struct RunningRequest<'a> {
    activity: &'a ConnectionActivity,
    /// Start of the request: the arrival of its first byte, or of its head if requests overlap.
    pub(super) since: Instant,
}

impl ConnectionActivity {
    /// State of a connection that is opened now.
    pub(super) fn new(auth: Arc<ConnectionAuth>) -> Self {
        Self {
            begun: AtomicU64::new(0),
            linger: AtomicBool::new(false),
            opened: Instant::now(),
            head_micros: AtomicU64::new(0),
            upgraded: AtomicBool::new(false),
            auth,
        }
    }

    /// Records the arrival of the first byte of a head.
    fn begin_head(&self) {
        let micros = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.head_micros.store(micros.max(1), Relaxed);
    }

    /// Counts a request as running until the guard is dropped.
    pub(super) fn begin(&self) -> RunningRequest<'_> {
        self.begun.fetch_add(1, Relaxed);
        self.auth.eviction().running.fetch_add(1, Relaxed);
        let since = match self.head_micros.swap(0, Relaxed) {
            0 => Instant::now(),
            micros => self.opened + Duration::from_micros(micros),
        };
        RunningRequest { activity: self, since }
    }

    /// Number of running requests.
    pub(super) fn running(&self) -> u32 {
        self.auth.eviction().running.load(Relaxed)
    }

    /// Same as [`begin`](Self::begin), for an exchange that outlives its request, such as a WebSocket. The
    /// idle timeout does not apply until the guard is dropped.
    pub(super) fn begin_exchange(self: &Arc<Self>) -> RunningExchange {
        self.begun.fetch_add(1, Relaxed);
        self.auth.eviction().running.fetch_add(1, Relaxed);
        RunningExchange(Arc::clone(self))
    }

    /// Stops rewriting responses: after the current one the connection is no longer HTTP.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Relaxed);
    }

    /// Requests a lingering close, because the peer may still be sending.
    pub(super) fn linger(&self) {
        self.linger.store(true, Relaxed);
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.activity.auth.eviction().running.fetch_sub(1, Relaxed);
    }
}

/// Guard of an exchange that outlives its request.
pub(super) struct RunningExchange(Arc<ConnectionActivity>);

impl Drop for RunningExchange {
    fn drop(&mut self) {
        self.0.auth.eviction().running.fetch_sub(1, Relaxed);
    }
}

/// Expected input, which selects the read timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadWait {
    /// The first byte of the connection.
    Opening,
    /// The rest of a head.
    Head,
    /// The next request.
    Idle,
    /// Nothing: a request is running.
    Nothing,
}

/// Byte stream with timeouts.
pub(super) struct GuardedStream {
    stream: PeerStream,
    activity: Arc<ConnectionActivity>,
    limits: Arc<Limits>,
    seen: u64,
    wait: ReadWait,
    since: Instant,
    is_http2: bool,
    read_timer: Pin<Box<Sleep>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    rewritten: Option<(Bytes, usize)>,
    closing: Option<usize>,
}

impl GuardedStream {
    pub(super) fn new(
        stream: PeerStream,
        activity: Arc<ConnectionActivity>,
        limits: Arc<Limits>,
    ) -> Self {
        let since = Instant::now();
        Self {
            stream,
            activity,
            seen: 0,
            wait: ReadWait::Opening,
            since,
            is_http2: false,
            read_timer: Box::pin(sleep_until(since + limits.header_read_max())),
            write_timer: None,
            rewritten: None,
            closing: None,
            limits,
        }
    }

    /// Updates the expected input after a read. The head timeout starts with the first byte.
    fn arrived(&mut self, bytes: &[u8]) {
        if self.wait == ReadWait::Opening {
            self.is_http2 = bytes.starts_with(b"PRI");
        }
        match self.wait {
            ReadWait::Opening => self.wait = ReadWait::Head,
            ReadWait::Idle if !self.is_http2 => {
                self.wait = ReadWait::Head;
                self.since = Instant::now();
            }
            ReadWait::Idle | ReadWait::Head | ReadWait::Nothing => return,
        }
        if !self.is_http2 {
            self.activity.begin_head();
        }
    }

    /// Updates the expected input from the requests that started or ended since the last read.
    fn update_wait(&mut self) {
        let begun = self.activity.begun.load(Relaxed);
        let running = self.activity.running() > 0;
        if running {
            self.seen = begun;
            self.wait = ReadWait::Nothing;
        } else if self.wait == ReadWait::Nothing
            || begun != self.seen
            || (self.is_http2 && self.wait == ReadWait::Head)
        {
            self.seen = begun;
            self.wait = ReadWait::Idle;
            self.since = Instant::now();
        }
    }

    /// Whether the read timeout has expired; if not, registers a wake-up for when it does.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let longest = match self.wait {
            ReadWait::Nothing => return false,
            ReadWait::Opening | ReadWait::Head => self.limits.header_read_max(),
            ReadWait::Idle if self.activity.auth.is_authenticated() => self.limits.idle_max(),
            ReadWait::Idle => self.limits.unauthenticated_idle_max(),
        };
        let due = self.since + longest;
        // The timer may fire early, never late, so that a busy connection rarely resets it.
        if self.read_timer.deadline() > due {
            self.read_timer.as_mut().reset(due);
        }
        while self.read_timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            self.read_timer.as_mut().reset(due);
        }
        false
    }

    /// Sends 408 for a head that timed out. One attempt, because the peer may be gone.
    fn send_head_timeout(&mut self, cx: &mut Context<'_>) {
        let hint = self.limits.retry_after_seconds_min;
        let reply = response::general(
            Code::RequestTimeout,
            "timeout while reading the request head (limits.header_read_ms_max)",
            hint,
        );
        let response = complete_response("408 Request Timeout", &reply.body);
        let written = Pin::new(&mut self.stream).poll_write(cx, &response);
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if !matches!((written, flushed), (Poll::Ready(Ok(_)), Poll::Ready(Ok(())))) {
            tracing::debug!("cannot send the timeout response");
        }
    }

    /// Whether the write timeout has expired.
    fn is_write_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let write_max = self.limits.write_max();
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + write_max)));
        timer.as_mut().poll(cx).is_ready()
    }

    fn poll_write_timed(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Ready(done) => {
                self.write_timer = None;
                Poll::Ready(done)
            }
            Poll::Pending if self.is_write_overdue(cx) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        this.update_wait();
        if let Poll::Ready(done) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.arrived(&buf.filled()[before..]);
            return Poll::Ready(done);
        }
        if !this.is_overdue(cx) {
            return Poll::Pending;
        }
        if this.wait == ReadWait::Head {
            this.send_head_timeout(cx);
        }
        // End of input, which closes the connection.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let is_http1 = !this.is_http2 && !this.activity.upgraded.load(Relaxed);
        if this.rewritten.is_none() && is_http1 {
            this.rewritten = rewrite(buf).map(|whole| (whole, buf.len()));
            if this.rewritten.is_some() {
                this.activity.linger();
            }
        }
        while let Some((mut rest, original_len)) = this.rewritten.take() {
            match this.poll_write_timed(cx, &rest) {
                Poll::Ready(Ok(written)) => {
                    rest.advance(written);
                    if rest.is_empty() {
                        return Poll::Ready(Ok(original_len));
                    }
                    this.rewritten = Some((rest, original_len));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.rewritten = Some((rest, original_len));
                    return Poll::Pending;
                }
            }
        }
        this.poll_write_timed(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut left = match this.closing {
            Some(left) => left,
            None => {
                ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                this.read_timer.as_mut().reset(Instant::now() + LINGER);
                LINGER_BYTES_MAX
            }
        };
        let mut scrap = [0_u8; 8 * 1024];
        while this.activity.linger.load(Relaxed) && left > 0 {
            this.closing = Some(left);
            let mut buf = ReadBuf::new(&mut scrap);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    left = left.saturating_sub(buf.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(this.read_timer.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Adds the general error object to a bare error response of the HTTP library, if `buf` ends with one.
///
/// A bare response is a client error without a body, at the end of the buffer. Responses of the gate have a
/// body, so normally this is a single comparison.
fn rewrite(buf: &[u8]) -> Option<Bytes> {
    if !buf.ends_with(b"\r\n\r\n") {
        return None;
    }
    const START: &[u8] = b"HTTP/1.";
    let start = buf.windows(START.len()).rposition(|window| window == START)?;
    let (before, head) = buf.split_at(start);
    let head = std::str::from_utf8(head).ok()?;
    let status = head.lines().next()?.get("HTTP/1.1 ".len()..)?;
    let is_bare = status.starts_with('4') && head.contains("\r\ncontent-length: 0\r\n");
    if !is_bare {
        return None;
    }
    let message = match status.split(' ').next() {
        Some("414") => "the request target exceeds limits.headers_bytes_max",
        Some("431") => "the headers exceed limits.headers_bytes_max",
        _ => "malformed request head",
    };
    let reply = response::general(Code::InvalidRequest, message, 0);
    let mut whole = before.to_vec();
    whole.extend_from_slice(&complete_response(status, &reply.body));
    Some(whole.into())
}

/// Returns a complete HTTP/1.1 response that closes the connection.
pub(super) fn complete_response(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut whole = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
         x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes();
    whole.extend_from_slice(body);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_responses_of_the_library_get_a_body() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
            content-length: 0\r\n\r\n";
        let whole = rewrite(bare).unwrap();
        assert!(whole.starts_with(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"));
        assert!(whole.ends_with(b"\"retryable\":false,\"retry_after_seconds\":0}}"));

        let ours = b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\n{}";
        assert!(rewrite(ours).is_none());
        let to_head = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 20\r\n\r\n";
        assert!(rewrite(to_head).is_none());
        assert!(rewrite(b"HTTP/1.1 100 Continue\r\n\r\n").is_none());
    }

    #[test]
    fn an_earlier_response_in_the_same_write_is_unchanged() {
        let both = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}\
            HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let whole = rewrite(both).unwrap();
        assert!(whole.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 400"));
        assert!(whole.ends_with(b"}}"));
    }
}
