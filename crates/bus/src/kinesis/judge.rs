//! What an answer of Kinesis proves about a message, and what an error says about a request.

use std::error::Error;
use std::io;

use aws_sdk_kinesis::config::http::HttpResponse;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::types::PutRecordsResultEntry;

use super::shards::partition;
use crate::port::{OffsetKind, Published, Reference};

/// The words of Kinesis for: too much, for the moment.
const THROTTLED: [&str; 4] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "LimitExceededException",
    "KMSThrottlingException",
];

/// What became of one record of a request that was answered.
pub(super) fn record(topic: &str, entry: &PutRecordsResultEntry) -> Published {
    if let Some(code) = entry.error_code() {
        let said = entry.error_message().unwrap_or_default();
        return match THROTTLED.contains(&code) {
            true => Published::NotWritten {
                reason: format!("throttled: {code}: its shard takes no more just now"),
            },
            // Of everything else Kinesis only says that it failed, not where.
            false => Published::Unknown { reason: format!("kinesis says {code}: {said}") },
        };
    }
    let place = entry.shard_id().and_then(partition).zip(entry.sequence_number());
    match place {
        Some((partition, sequence)) if is_sequence(sequence) => Published::Committed(Reference {
            topic: topic.to_owned(),
            partition,
            offset: sequence.to_owned(),
            offset_kind: OffsetKind::KinesisSequence,
            // Kinesis says when a record came only to those who read it.
            published_at: None,
        }),
        _ => Published::Unknown { reason: "kinesis does not say where it put it".to_owned() },
    }
}

/// Whether a text can be the sequence number of a record.
pub(super) fn is_sequence(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What became of every record of a request that failed as a whole.
pub(super) fn failed<E>(error: &SdkError<E, HttpResponse>) -> Published
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let reason = said(error);
    // It was never sent: there is no request, or nobody to send it to.
    let is_unsent = matches!(error, SdkError::ConstructionFailure(_))
        || matches!(error, SdkError::DispatchFailure(_)) && is_unreached(error);
    // Refused before anything was written; whatever failed inside may have written first.
    let is_refused = matches!(error, SdkError::ServiceError(refused)
        if matches!(refused.raw().status().as_u16(), 400 | 403 | 404 | 413 | 429));
    if is_unsent || is_refused {
        Published::NotWritten { reason }
    } else {
        Published::Unknown { reason }
    }
}

/// Whether the connection was refused, so that no byte of the request left.
fn is_unreached(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(one) = cause {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if one.downcast_ref::<io::Error>().is_some_and(refused) {
            return true;
        }
        cause = one.source();
    }
    false
}

/// What an error says, with its causes.
pub(super) fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let Some(code) = error.code() {
        let word = if THROTTLED.contains(&code) { "throttled: " } else { "" };
        return format!("{word}{code}: {}", error.message().unwrap_or_default());
    }
    let is_late = matches!(error, SdkError::TimeoutError(_));
    let mut said = if is_late { "no answer in time".to_owned() } else { error.to_string() };
    let mut cause = error.source();
    while let Some(one) = cause {
        let text = one.to_string();
        if !said.ends_with(&text) {
            said = format!("{said}: {text}");
        }
        cause = one.source();
    }
    said
}

/// Whether a reader may ask again in a moment.
pub(super) fn is_throttled<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code().is_some_and(|code| THROTTLED.contains(&code))
}

/// Whether there is no such stream.
pub(super) fn is_absent<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code() == Some("ResourceNotFoundException")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: Option<&str>, shard: Option<&str>, sequence: Option<&str>) -> Published {
        let entry = PutRecordsResultEntry::builder()
            .set_error_code(code.map(str::to_owned))
            .set_shard_id(shard.map(str::to_owned))
            .set_sequence_number(sequence.map(str::to_owned));
        record("t", &entry.build())
    }

    #[test]
    fn records_of_one_request_fare_each_as_kinesis_says() {
        let committed = entry(None, Some("shardId-000000000012"), Some("4957"));
        assert!(
            matches!(&committed, Published::Committed(at) if at.partition == 12 && at.offset == "4957")
        );
        let throttled = entry(Some("ProvisionedThroughputExceededException"), None, None);
        assert!(
            matches!(&throttled, Published::NotWritten { reason } if reason.contains("throttled"))
        );
        for (code, shard, sequence) in [
            (Some("InternalFailure"), None, None),
            (Some("SomethingNew"), Some("shardId-000000000000"), Some("1")),
            (None, None, Some("1")),
            (None, Some("shardId-000000000000"), None),
            (None, Some("shardId-000000000000"), Some("not a number")),
        ] {
            let unknown = entry(code, shard, sequence);
            assert!(matches!(unknown, Published::Unknown { .. }), "{code:?}: {unknown:?}");
        }
    }
}
