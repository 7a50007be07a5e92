//! Reading a body: so much, so long, and what happens to the rest.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;

/// Why there is no body.
#[derive(Debug)]
pub(super) enum BodyError {
    /// More than the limit, announced or sent.
    TooLarge,
    /// Not all of it came in time.
    TooSlow,
    /// The peer broke off or sent something that is no body.
    Broken,
}

/// How many bytes the head announces, or the limit where it announces nothing.
pub(super) fn expected_bytes(body: &Incoming, limits: &Limits) -> usize {
    let announced = body.size_hint().exact();
    announced.map_or(limits.body_bytes_max, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Reads a whole body of at most `body_bytes_max`.
pub(super) async fn read(
    body: &mut Incoming,
    limits: &Limits,
    begun: Instant,
) -> Result<Bytes, BodyError> {
    let bytes_max = limits.body_bytes_max;
    let expected = expected_bytes(body, limits);
    if expected > bytes_max {
        return Err(BodyError::TooLarge);
    }
    let reading = async {
        // Most bodies are one piece, which is then taken as it is.
        let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
        if body.is_end_stream() && first.len() <= bytes_max {
            return Ok(first);
        }
        let capacity = if body.size_hint().exact().is_some() { expected } else { first.len() * 2 };
        let mut whole = BytesMut::with_capacity(capacity.min(bytes_max));
        let mut piece = Some(first);
        while let Some(data) = piece {
            if whole.len() + data.len() > bytes_max {
                return Err(BodyError::TooLarge);
            }
            whole.extend_from_slice(&data);
            piece = next_data(body).await?;
        }
        Ok(whole.freeze())
    };
    let until = begun + limits.body_read_max();
    timeout_at(until, reading).await.unwrap_or(Err(BodyError::TooSlow))
}

/// The next piece of data; trailers are passed over.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() {
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
