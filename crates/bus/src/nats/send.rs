//! Publishing: messages are sent in the order of the batch; each outcome states what is known.
//!
//! ```text
//! invalid message, too large, or no connection              -> not written
//! connection lost before it was sent                        -> not written
//! refused by the server (no stream, full, throttled)        -> not written
//! sent, and the connection is lost                          -> unknown
//! sent, and no acknowledgement before the timeout           -> unknown; the connection is closed
//! acknowledged                                              -> committed at its sequence
//! acknowledged as a duplicate                               -> committed at the first one's sequence
//! ```

use admit_core::with_causes;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, ErrorCode};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::link::{NatsLink, NatsSession};
use super::stream::{name_of, subject_of};
use super::{Options, PARTITION, header};
use crate::port::{Message, OffsetKind, PublishOutcome, Reference};

/// Server errors that prove that the message was not stored.
const REFUSALS: [ErrorCode; 9] = [
    ErrorCode::STREAM_NOT_MATCH,
    ErrorCode::STREAM_NOT_FOUND,
    ErrorCode::STREAM_SEALED,
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_TOO_MANY_REQUESTS,
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::JETSTREAM_NOT_ENABLED,
    ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
];

/// Publishes messages over one connection. Messages with a reason are not sent.
pub(super) async fn publish(
    link: &NatsLink,
    session: &NatsSession,
    options: &Options,
    batch: Vec<(Message, Option<String>)>,
) -> Vec<PublishOutcome> {
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut in_flight = FuturesUnordered::new();
    let mut broken: Option<String> = None;
    for (index, (message, reason)) in batch.into_iter().enumerate() {
        outcomes.push(PublishOutcome::NotWritten { reason: String::new() });
        if let Some(reason) = reason.or_else(|| broken.clone()) {
            outcomes[index] = PublishOutcome::NotWritten { reason };
            continue;
        }
        let sending = send(session, options, message);
        tokio::pin!(sending);
        // While waiting for capacity, acknowledgements must be processed: they free it.
        let sent = loop {
            tokio::select! {
                biased;
                sent = &mut sending => break sent,
                Some((index, outcome)) = in_flight.next() => outcomes[index] = outcome,
            }
        };
        match sent {
            Ok((acknowledged, reference)) => in_flight.push(async move {
                (index, outcome(link, session, acknowledged.await, reference))
            }),
            Err(error) => {
                let reason = format!("not sent to nats: {}", with_causes(&error));
                // Later messages must not overtake it, whatever their partition key.
                if !matches!(error.kind(), PublishErrorKind::MaxPayloadExceeded) {
                    broken = Some(format!("an earlier message was {reason}"));
                }
                outcomes[index] = PublishOutcome::NotWritten { reason };
            }
        }
    }
    while let Some((index, outcome)) = in_flight.next().await {
        outcomes[index] = outcome;
    }
    outcomes
}

async fn send(
    session: &NatsSession,
    options: &Options,
    message: Message,
) -> Result<(PublishAckFuture, Reference), PublishError> {
    let reference = Reference {
        topic: message.topic.to_string(),
        partition: PARTITION,
        offset: String::new(),
        offset_kind: OffsetKind::NatsSequence,
        published_at: Some(message.at),
    };
    let headers = header::headers(&message.dedupe_key, &message.partition_key, message.at);
    let outgoing = PublishMessage::build()
        .payload(message.payload)
        .headers(headers)
        .expected_stream(name_of(options, &message.topic));
    let subject = subject_of(options, &message.topic);
    let acknowledged = session.context.send_publish(subject, outgoing).await?;
    Ok((acknowledged, reference))
}

fn outcome(
    link: &NatsLink,
    session: &NatsSession,
    acknowledged: Result<PublishAck, PublishError>,
    reference: Reference,
) -> PublishOutcome {
    let error = match acknowledged {
        Ok(ack) => {
            let offset = ack.sequence.to_string();
            // The server does not report when the first one was published.
            let published_at = reference.published_at.filter(|_| !ack.duplicate);
            return PublishOutcome::Committed(Reference { offset, published_at, ..reference });
        }
        Err(error) => error,
    };
    let reason = with_causes(&error);
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            PublishOutcome::NotWritten { reason: format!("no stream takes this topic: {reason}") }
        }
        PublishErrorKind::TimedOut => {
            link.close_session(session);
            PublishOutcome::Unknown { reason: "timeout: nats did not acknowledge".to_owned() }
        }
        PublishErrorKind::BrokenPipe => {
            let reason = "the connection to nats was lost before the acknowledgement".to_owned();
            PublishOutcome::Unknown { reason }
        }
        PublishErrorKind::Other if is_refusal(&error) => {
            PublishOutcome::NotWritten { reason: format!("refused by nats: {reason}") }
        }
        PublishErrorKind::Other
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded => {
            PublishOutcome::Unknown { reason: format!("nats returned an error: {reason}") }
        }
    }
}

/// Whether the error proves that the message was not stored. A failed store may have written it.
fn is_refusal(error: &PublishError) -> bool {
    let cause = std::error::Error::source(error);
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<jetstream::Error>()) else {
        return false;
    };
    let is_full = |text: &str| {
        ["maximum bytes exceeded", "maximum messages exceeded"]
            .iter()
            .any(|full| text.contains(full))
    };
    REFUSALS.contains(&cause.error_code())
        || cause.error_code() == ErrorCode::STREAM_STORE_FAILED && is_full(&cause.to_string())
}
