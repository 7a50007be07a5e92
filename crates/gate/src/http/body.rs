//! Reading a body: so much, so long, and what happens to the rest.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::room::Inside;

/// Why there is no body.
#[derive(Debug)]
pub(super) enum BodyError {
    /// More than the limit, announced or sent.
    TooLarge,
    /// Not all of it came in time.
    TooSlow,
    /// It ended before its end.
    BrokenOff,
    /// It is none: pieces that are not written as pieces are.
    Broken,
    /// What has arrived of it does not fit beside the other bodies in flight.
    NoRoom,
}

impl From<hyper::Error> for BodyError {
    fn from(error: hyper::Error) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => Self::BrokenOff,
            _ => Self::Broken,
        }
    }
}

/// How many bytes the head announces, if it does.
pub(super) fn announced_bytes(body: &Incoming) -> Option<usize> {
    body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Reads a whole body of at most `body_bytes_max`. What `inside` does not hold yet is reserved as it
/// arrives: a peer that announces a body and never sends it costs the others nothing.
pub(super) async fn read(
    body: &mut Incoming,
    limits: &Limits,
    begun: Instant,
    inside: &mut Inside,
) -> Result<Bytes, BodyError> {
    let bytes_max = limits.body_bytes_max;
    let reading = async {
        // Most bodies are one piece, which is then taken as it is.
        let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
        if body.is_end_stream() && first.len() <= bytes_max {
            reserve(inside, first.len())?;
            return Ok(first);
        }
        let mut whole = BytesMut::new();
        let mut piece = Some(first);
        while let Some(data) = piece {
            let length = whole.len() + data.len();
            if length > bytes_max {
                return Err(BodyError::TooLarge);
            }
            reserve(inside, length)?;
            // What is reserved may be allocated too, so that a large body is not moved again and again.
            whole.reserve(inside.bytes().saturating_sub(whole.len()).max(data.len()));
            whole.extend_from_slice(&data);
            piece = next_data(body).await?;
        }
        Ok(whole.freeze())
    };
    let until = begun + limits.body_read_max();
    let read = timeout_at(until, reading).await.unwrap_or(Err(BodyError::TooSlow))?;
    inside.shrink_to(read.len());
    Ok(read)
}

fn reserve(inside: &mut Inside, bytes: usize) -> Result<(), BodyError> {
    if inside.grow_to(bytes) { Ok(()) } else { Err(BodyError::NoRoom) }
}

/// The next piece of data; trailers are passed over.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads and throws away what is left of a refused body, within limits, so that the peer has sent
/// all it wanted and listens. Says whether all of it is gone.
pub(super) async fn discard(
    mut body: Incoming,
    headers: &HeaderMap,
    limits: &Limits,
    begun: Instant,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    // Such a peer waits to be asked for its body; asking would only make it send.
    if headers.contains_key(header::EXPECT) {
        return false;
    }
    let discarding = async {
        let mut left = limits.excess_bytes_max;
        loop {
            match next_data(&mut body).await {
                Ok(Some(data)) if data.len() <= left => left -= data.len(),
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    timeout_at(begun + limits.body_read_max(), discarding).await.unwrap_or(false)
}

/// A body that a handler reads, or leaves: what it leaves can be taken back and discarded.
#[derive(Clone, Debug)]
pub(super) struct Lent(Arc<Mutex<Incoming>>);

impl Lent {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }

    /// The body, once nobody else has it.
    pub(super) fn take_back(self) -> Option<Incoming> {
        Arc::into_inner(self.0)
            .map(|body| body.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn borrowed(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.borrowed()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.borrowed().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.borrowed().size_hint()
    }
}
