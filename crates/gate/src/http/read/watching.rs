//! Watching a stream: server-sent events, from a place on, for a while.
//!
//! A watcher keeps its place by the ids it has seen and comes back with `Last-Event-ID`, so ending
//! it costs nothing: when its time is up, when the gate drains, or when the ledger fails.

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

use super::streams::{PAGE_BYTES_MAX, Stream, seen};

/// A sign of life so often, so that neither side takes a quiet stream for a dead one.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What a watcher is told first: how soon to come back when the connection ends, in milliseconds.
const OPENING: &[u8] = b"retry: 1000\n\n";
const ALIVE: &[u8] = b": alive\n\n";

struct Watching {
    stream: Stream,
    after: Seq,
    rows_max: usize,
    until: Instant,
    is_opened: bool,
}

/// Every event after a place, as it comes.
pub(super) fn watch(stream: Stream, after: Seq, rows_max: usize) -> Response {
    let until = Instant::now() + stream.gate.limits.watch_max();
    let watching = Watching { stream, after, rows_max, until, is_opened: false };
    let pieces = stream::unfold(watching, |mut watching| async move {
        let piece = watching.next().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), watching))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Watching {
    /// The next piece of the answer; `None` is its end.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.is_opened {
            self.is_opened = true;
            return Some(Bytes::from_static(OPENING));
        }
        let Stream { gate, way_out, door } = &self.stream;
        let news = read_or_wait(way_out.as_ref(), door, self.after, self.rows_max, PAGE_BYTES_MAX);
        let page = tokio::select! {
            biased;
            () = gate.drain.cancelled() => return None,
            () = sleep_until(self.until) => return None,
            page = news => page,
            () = sleep(HEARTBEAT) => return Some(Bytes::from_static(ALIVE)),
        };
        // An empty page means that the ledger has closed. Whoever comes back is told more.
        let page = page.ok().filter(|page| !page.entries.is_empty())?;
        let ledger = gate.ledger.tag();
        let mut piece = Vec::new();
        for entry in &page.entries {
            piece.extend_from_slice(format!("id: {}\ndata: ", entry.seq.0).as_bytes());
            write_object(&seen(ledger, entry), &mut piece);
            piece.extend_from_slice(b"\n\n");
        }
        self.after = page.next;
        Some(piece.into())
    }
}
