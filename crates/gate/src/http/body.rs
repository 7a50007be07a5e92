//! Request bodies: reads them within size, time and memory limits, and discards the rest of refused ones.

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

use crate::admission_limiter::AdmissionPermit;
use crate::limits::Limits;

/// Reason why a body was not read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Larger than `limits.body_bytes_max`.
    TooLarge,
    /// Not complete within `limits.body_read_ms_max`.
    TooSlow,
    /// The connection closed before the end of the body.
    Truncated,
    /// Invalid framing, such as a malformed chunk.
    Malformed,
    /// `limits.body_bytes_in_flight_max` is exhausted.
    NoMemory,
}

impl From<hyper::Error> for BodyError {
    fn from(error: hyper::Error) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => Self::Truncated,
            _ => Self::Malformed,
        }
    }
}

/// Returns the body length that the head declares, if it does.
pub(super) fn declared_bytes(body: &Incoming) -> Option<usize> {
    body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Reads a whole body of at most `body_bytes_max`. Memory beyond that of `permit` is reserved as the bytes
/// arrive: a peer that declares a large body and never sends it takes none from others.
pub(super) async fn read(
    body: &mut Incoming,
    limits: &Limits,
    begun: Instant,
    permit: &mut AdmissionPermit,
) -> Result<Bytes, BodyError> {
    let bytes_max = limits.body_bytes_max;
    let reading = async {
        // Most bodies are a single chunk, which needs no copy.
        let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
        if body.is_end_stream() && first.len() <= bytes_max {
            reserve(permit, first.len())?;
            return Ok(first);
        }
        let mut whole = BytesMut::new();
        let mut piece = Some(first);
        while let Some(data) = piece {
            let length = whole.len() + data.len();
            if length > bytes_max {
                return Err(BodyError::TooLarge);
            }
            reserve(permit, length)?;
            // Allocate all reserved bytes at once, to avoid repeated copies of a large body.
            whole.reserve(permit.bytes().saturating_sub(whole.len()).max(data.len()));
            whole.extend_from_slice(&data);
            piece = next_data(body).await?;
        }
        Ok(whole.freeze())
    };
    let until = begun + limits.body_read_max();
    let read = timeout_at(until, reading).await.unwrap_or(Err(BodyError::TooSlow))?;
    permit.shrink_to(read.len());
    Ok(read)
}

fn reserve(permit: &mut AdmissionPermit, bytes: usize) -> Result<(), BodyError> {
    if permit.grow_to(bytes) { Ok(()) } else { Err(BodyError::NoMemory) }
}

/// Returns the next chunk of data; trailers are skipped.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Discards the rest of a refused body, within limits: many clients read the response only after they have
/// sent the whole body. Returns whether the body ended.
pub(super) async fn discard(
    mut body: Incoming,
    headers: &HeaderMap,
    limits: &Limits,
    begun: Instant,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    // With `Expect: 100-continue` the body has not been sent; reading would request it.
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

/// A body that is shared with a handler, so that the part it did not read can be discarded afterwards.
#[derive(Clone, Debug)]
pub(super) struct SharedBody(Arc<Mutex<Incoming>>);

impl SharedBody {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }

    /// Returns the body, if the handler has dropped it.
    pub(super) fn into_inner(self) -> Option<Incoming> {
        Arc::into_inner(self.0)
            .map(|body| body.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for SharedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
