//! Server-sent events of a stream.
//!
//! A response ends after `limits.watch_ms_max`, when the gate drains or when the ledger fails. The client
//! reconnects with `Last-Event-ID` and misses no event.

use std::time::Duration;

use admit_core::Seq;
use admit_core::json::write_object;
use admit_ledger::port::read_or_wait;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use tokio::time::{Instant, sleep, sleep_until};

use super::streams::{PAGE_BYTES_MAX, ReadableStream, event_object};

/// Interval of heartbeat comments, so that neither side closes an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// First message: the reconnect delay of the client, in milliseconds.
const RETRY_HINT: &[u8] = b"retry: 1000\n\n";
const HEARTBEAT_COMMENT: &[u8] = b": alive\n\n";

/// State of one response.
struct StreamFeed {
    stream: ReadableStream,
    after: Seq,
    rows_max: usize,
    until: Instant,
    is_opened: bool,
}

/// Returns a response with every event after a seq, as it arrives.
pub(super) fn stream_events(stream: ReadableStream, after: Seq, rows_max: usize) -> Response {
    let until = Instant::now() + stream.gate.limits.watch_max();
    let feed = StreamFeed { stream, after, rows_max, until, is_opened: false };
    let pieces = stream::unfold(feed, |mut feed| async move {
        let piece = feed.next().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), feed))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl StreamFeed {
    /// Returns the next chunk of the response; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.is_opened {
            self.is_opened = true;
            return Some(Bytes::from_static(RETRY_HINT));
        }
        let ReadableStream { gate, stream_ports, door } = &self.stream;
        let next_page =
            read_or_wait(stream_ports.as_ref(), door, self.after, self.rows_max, PAGE_BYTES_MAX);
        let page = tokio::select! {
            biased;
            () = gate.drain.cancelled() => return None,
            () = sleep_until(self.until) => return None,
            page = next_page => page,
            () = sleep(HEARTBEAT) => return Some(Bytes::from_static(HEARTBEAT_COMMENT)),
        };
        // An empty page means that the ledger has closed.
        let page = page.ok().filter(|page| !page.entries.is_empty())?;
        let ledger = gate.ledger.tag();
        let mut piece = Vec::new();
        for entry in &page.entries {
            piece.extend_from_slice(format!("id: {}\ndata: ", entry.seq.0).as_bytes());
            write_object(&event_object(ledger, entry), &mut piece);
            piece.extend_from_slice(b"\n\n");
        }
        self.after = page.next;
        Some(piece.into())
    }
}
