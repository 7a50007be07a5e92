//! Publishing: what is handed over in order is sent in order, and each answer says what is known.
//!
//! ```text
//! it is no message, too large, or there is no connection    -> not written
//! the connection is lost before its turn comes              -> not written
//! the server refuses it (no stream, full, throttled)        -> not written
//! handed over, and the connection is lost                   -> unknown
//! handed over, and no answer in time                        -> unknown; the connection is given up
//! acknowledged                                              -> committed at its sequence
//! acknowledged as a copy                                    -> committed where the first one is
//! ```

use admit_core::with_causes;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, ErrorCode};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::link::{Link, Session};
use super::stream::{name_of, subject_of};
use super::{Options, PARTITION, header};
use crate::port::{Message, OffsetKind, Published, Reference};

/// Errors of the server that say that it did not take the message.
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

/// Publishes messages over one connection. Those with a reason are not sent.
pub(super) async fn publish(
    link: &Link,
    session: &Session,
    options: &Options,
    batch: Vec<(Message, Option<String>)>,
) -> Vec<Published> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut on_the_way = FuturesUnordered::new();
    let mut is_broken: Option<String> = None;
    for (place, (message, reason)) in batch.into_iter().enumerate() {
        answers.push(Published::NotWritten { reason: String::new() });
        if let Some(reason) = reason.or_else(|| is_broken.clone()) {
            answers[place] = Published::NotWritten { reason };
            continue;
        }
        let sending = send(session, options, message);
        tokio::pin!(sending);
        // Whoever waits for room must hear the answers that make it.
        let sent = loop {
            tokio::select! {
                biased;
                sent = &mut sending => break sent,
                Some((place, answer)) = on_the_way.next() => answers[place] = answer,
            }
        };
        match sent {
            Ok((acknowledged, reference)) => on_the_way
                .push(async move { (place, answer(link, session, acknowledged.await, reference)) }),
            Err(error) => {
                let reason = format!("not handed over to nats: {}", with_causes(&error));
                // What comes later must not overtake it, whatever its partition key.
                if !matches!(error.kind(), PublishErrorKind::MaxPayloadExceeded) {
                    is_broken = Some(format!("an earlier message was {reason}"));
                }
                answers[place] = Published::NotWritten { reason };
            }
        }
    }
    while let Some((place, answer)) = on_the_way.next().await {
        answers[place] = answer;
    }
    answers
}

async fn send(
    session: &Session,
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

fn answer(
    link: &Link,
    session: &Session,
    answer: Result<PublishAck, PublishError>,
    reference: Reference,
) -> Published {
    let error = match answer {
        Ok(ack) => {
            let offset = ack.sequence.to_string();
            // When the first one was published is not said.
            let published_at = reference.published_at.filter(|_| !ack.duplicate);
            return Published::Committed(Reference { offset, published_at, ..reference });
        }
        Err(error) => error,
    };
    let reason = with_causes(&error);
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            Published::NotWritten { reason: format!("no stream takes this topic: {reason}") }
        }
        PublishErrorKind::TimedOut => {
            link.give_up(session);
            Published::Unknown { reason: "nats did not acknowledge in time".to_owned() }
        }
        PublishErrorKind::BrokenPipe => {
            let reason = "the connection to nats was lost before it acknowledged".to_owned();
            Published::Unknown { reason }
        }
        PublishErrorKind::Other if is_refusal(&error) => {
            Published::NotWritten { reason: format!("nats refused it: {reason}") }
        }
        PublishErrorKind::Other
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded => {
            Published::Unknown { reason: format!("nats answered with an error: {reason}") }
        }
    }
}

/// Whether the server says that it did not take the message. A store that failed may have written.
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
