//! A connection's bytes, watched: waits that are too long, and answers that would be empty.
//!
//! The HTTP library answers heads it cannot read with a bare status, and heads that never end with
//! nothing at all. Producers that judge by the body lose an event on either. So this layer, which
//! sees all bytes go by, completes the former with the general error object and answers the latter
//! itself. It also ends connections that idle or do not read, and stays a moment with a peer that
//! is still sending what nobody wants, so that it gets to read why.

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

use super::answer;
use super::wire::Wire;
use crate::limits::Limits;
use crate::standing::Standing;

/// How long, and for how much, a closing connection still listens to a peer that is sending.
pub(super) const LINGER: Duration = Duration::from_secs(2);
pub(super) const LINGER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What the two sides of a connection, requests and bytes, tell each other.
#[derive(Debug)]
pub(super) struct Traffic {
    begun: AtomicU64,
    linger: AtomicBool,
    opened: Instant,
    /// When the first byte came of a head that nobody has begun to answer, in microseconds after the
    /// connection was opened; 0 if it is not known.
    head_micros: AtomicU64,
    /// Set once the connection speaks something else than HTTP.
    upgraded: AtomicBool,
    standing: Arc<Standing>,
}

/// One request that is being answered.
pub(super) struct Running<'a> {
    traffic: &'a Traffic,
    /// From when on its time counts: from its first byte, because that is when the producer began to wait.
    /// Where requests overlap nobody knows which byte that was, and it counts from its head.
    pub(super) since: Instant,
}

impl Traffic {
    /// Of a connection that is opened now.
    pub(super) fn new(standing: Arc<Standing>) -> Self {
        Self {
            begun: AtomicU64::new(0),
            linger: AtomicBool::new(false),
            opened: Instant::now(),
            head_micros: AtomicU64::new(0),
            upgraded: AtomicBool::new(false),
            standing,
        }
    }

    /// The first byte of a head has come.
    fn head_comes(&self) {
        let micros = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.head_micros.store(micros.max(1), Relaxed);
    }

    /// A head has been read; until the guard is dropped its answer is being made.
    pub(super) fn begin(&self) -> Running<'_> {
        self.begun.fetch_add(1, Relaxed);
        self.standing.activity().running.fetch_add(1, Relaxed);
        let since = match self.head_micros.swap(0, Relaxed) {
            0 => Instant::now(),
            micros => self.opened + Duration::from_micros(micros),
        };
        Running { traffic: self, since }
    }

    /// How many requests are being answered.
    pub(super) fn running(&self) -> u32 {
        self.standing.activity().running.load(Relaxed)
    }

    /// As [`begin`](Self::begin), for exchanges that outlive their request: until the guard is
    /// dropped nobody judges the connection by its silence.
    pub(super) fn begin_for_long(self: &Arc<Self>) -> RunningLong {
        self.begun.fetch_add(1, Relaxed);
        self.standing.activity().running.fetch_add(1, Relaxed);
        RunningLong(Arc::clone(self))
    }

    /// After the present answer the connection carries something else than HTTP, which is none of
    /// this layer's business.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Relaxed);
    }

    /// The peer may still be sending when the connection is closed.
    pub(super) fn linger(&self) {
        self.linger.store(true, Relaxed);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.traffic.standing.activity().running.fetch_sub(1, Relaxed);
    }
}

/// An exchange that outlives its request.
pub(super) struct RunningLong(Arc<Traffic>);

impl Drop for RunningLong {
    fn drop(&mut self) {
        self.0.standing.activity().running.fetch_sub(1, Relaxed);
    }
}

/// What is being waited for while no request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of all.
    Opening,
    /// The rest of a head.
    Head,
    /// The next request.
    Idle,
    /// Nothing: a request runs.
    Nothing,
}

/// A connection under watch.
pub(super) struct Watched {
    stream: Wire,
    traffic: Arc<Traffic>,
    limits: Arc<Limits>,
    seen: u64,
    wait: Wait,
    since: Instant,
    is_http2: bool,
    read_timer: Pin<Box<Sleep>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    rewritten: Option<(Bytes, usize)>,
    closing: Option<usize>,
}

impl Watched {
    pub(super) fn new(stream: Wire, traffic: Arc<Traffic>, limits: Arc<Limits>) -> Self {
        let since = Instant::now();
        Self {
            stream,
            traffic,
            seen: 0,
            wait: Wait::Opening,
            since,
            is_http2: false,
            read_timer: Box::pin(sleep_until(since + limits.header_read_max())),
            write_timer: None,
            rewritten: None,
            closing: None,
            limits,
        }
    }

    /// Notes that bytes came. The clock of a head starts with its first byte.
    fn arrived(&mut self, bytes: &[u8]) {
        if self.wait == Wait::Opening {
            self.is_http2 = bytes.starts_with(b"PRI");
        }
        match self.wait {
            Wait::Opening => self.wait = Wait::Head,
            Wait::Idle if !self.is_http2 => {
                self.wait = Wait::Head;
                self.since = Instant::now();
            }
            Wait::Idle | Wait::Head | Wait::Nothing => return,
        }
        if !self.is_http2 {
            self.traffic.head_comes();
        }
    }

    /// Follows what the request side did since the last look.
    fn follow(&mut self) {
        let begun = self.traffic.begun.load(Relaxed);
        let running = self.traffic.running() > 0;
        if running {
            self.seen = begun;
            self.wait = Wait::Nothing;
        } else if self.wait == Wait::Nothing
            || begun != self.seen
            || (self.is_http2 && self.wait == Wait::Head)
        {
            self.seen = begun;
            self.wait = Wait::Idle;
            self.since = Instant::now();
        }
    }

    /// Whether the present wait has lasted too long; if not, the task is woken when it has.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let longest = match self.wait {
            Wait::Nothing => return false,
            Wait::Opening | Wait::Head => self.limits.header_read_max(),
            Wait::Idle if self.traffic.standing.is_authenticated() => self.limits.idle_max(),
            Wait::Idle => self.limits.unauthenticated_idle_max(),
        };
        let due = self.since + longest;
        // The timer may ring early, never late, so that a busy connection hardly ever sets it.
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

    /// Answers a head that never ended. The peer may be gone, so this is tried once.
    fn answer_slow_head(&mut self, cx: &mut Context<'_>) {
        let hint = self.limits.retry_after_seconds_min;
        let reply = answer::general(Code::RequestTimeout, "the head did not arrive in time", hint);
        let answer = whole_answer("408 Request Timeout", &reply.body);
        let written = Pin::new(&mut self.stream).poll_write(cx, &answer);
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if !matches!((written, flushed), (Poll::Ready(Ok(_)), Poll::Ready(Ok(())))) {
            tracing::debug!("a slow peer could not be answered");
        }
    }

    /// Whether the peer has not taken a byte for too long.
    fn is_stuck(&mut self, cx: &mut Context<'_>) -> bool {
        let write_max = self.limits.write_max();
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + write_max)));
        timer.as_mut().poll(cx).is_ready()
    }

    fn poll_write_plain(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Ready(done) => {
                self.write_timer = None;
                Poll::Ready(done)
            }
            Poll::Pending if self.is_stuck(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        this.follow();
        if let Poll::Ready(done) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.arrived(&buf.filled()[before..]);
            return Poll::Ready(done);
        }
        if !this.is_overdue(cx) {
            return Poll::Pending;
        }
        if this.wait == Wait::Head {
            this.answer_slow_head(cx);
        }
        // An end of input, which closes the connection.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let is_http1 = !this.is_http2 && !this.traffic.upgraded.load(Relaxed);
        if this.rewritten.is_none() && is_http1 {
            this.rewritten = rewrite(buf).map(|whole| (whole, buf.len()));
            if this.rewritten.is_some() {
                this.traffic.linger();
            }
        }
        while let Some((mut rest, stands_for)) = this.rewritten.take() {
            match this.poll_write_plain(cx, &rest) {
                Poll::Ready(Ok(written)) => {
                    rest.advance(written);
                    if rest.is_empty() {
                        return Poll::Ready(Ok(stands_for));
                    }
                    this.rewritten = Some((rest, stands_for));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.rewritten = Some((rest, stands_for));
                    return Poll::Pending;
                }
            }
        }
        this.poll_write_plain(cx, buf)
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
        while this.traffic.linger.load(Relaxed) && left > 0 {
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

/// Completes an answer that the HTTP library made on its own, if `buf` ends with one.
///
/// Such an answer is a client error without a body at the end of what is to be written. Ours have
/// a body, so on the usual way this is one comparison.
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
        Some("414") => "the address is longer than this gate takes",
        Some("431") => "the headers are larger than this gate takes",
        _ => "the head of the request cannot be read",
    };
    let reply = answer::general(Code::InvalidRequest, message, 0);
    let mut whole = before.to_vec();
    whole.extend_from_slice(&whole_answer(status, &reply.body));
    Some(whole.into())
}

/// An answer of the last resort, complete with its head.
pub(super) fn whole_answer(status: &str, body: &[u8]) -> Vec<u8> {
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
    fn an_answer_of_the_library_gets_a_body_and_ours_stay_as_they_are() {
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
    fn an_earlier_answer_in_the_same_write_is_kept() {
        let both = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}\
            HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let whole = rewrite(both).unwrap();
        assert!(whole.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 400"));
        assert!(whole.ends_with(b"}}"));
    }
}
