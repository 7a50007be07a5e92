//! Classification of Kinesis results: what a response proves about a record, and what an error
//! proves about a request.

use std::error::Error;
use std::io;

use aws_sdk_kinesis::config::http::HttpResponse;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::types::PutRecordsResultEntry;

use super::shards::partition;
use crate::port::{OffsetKind, PublishOutcome, Reference};

/// Error codes of throttling.
const THROTTLING_CODES: [&str; 4] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "LimitExceededException",
    "KMSThrottlingException",
];

/// Outcome of one record of an acknowledged request.
pub(super) fn record(topic: &str, entry: &PutRecordsResultEntry) -> PublishOutcome {
    if let Some(code) = entry.error_code() {
        let message = entry.error_message().unwrap_or_default();
        return match THROTTLING_CODES.contains(&code) {
            true => PublishOutcome::NotWritten {
                reason: format!("throttled: {code}: the shard's write limit is exceeded"),
            },
            // Any other error does not state where it failed.
            false => PublishOutcome::Unknown { reason: format!("kinesis error {code}: {message}") },
        };
    }
    let location = entry.shard_id().and_then(partition).zip(entry.sequence_number());
    match location {
        Some((partition, sequence)) if is_sequence(sequence) => {
            PublishOutcome::Committed(Reference {
                topic: topic.to_owned(),
                partition,
                offset: sequence.to_owned(),
                offset_kind: OffsetKind::KinesisSequence,
                // Kinesis reports the arrival time only to consumers.
                published_at: None,
            })
        }
        _ => PublishOutcome::Unknown {
            reason: "kinesis returned no valid shard and sequence number".to_owned(),
        },
    }
}

/// Whether a text is a valid sequence number.
pub(super) fn is_sequence(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Outcome of every record of a request that failed as a whole.
pub(super) fn failed<E>(error: &SdkError<E, HttpResponse>) -> PublishOutcome
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let reason = error_text(error);
    // Never sent: the request was not built, or the connection was refused.
    let is_unsent = matches!(error, SdkError::ConstructionFailure(_))
        || matches!(error, SdkError::DispatchFailure(_)) && is_connection_refused(error);
    // Refused before anything was written. An internal failure may have written first.
    let is_refused = matches!(error, SdkError::ServiceError(refused)
        if matches!(refused.raw().status().as_u16(), 400 | 403 | 404 | 413 | 429));
    if is_unsent || is_refused {
        PublishOutcome::NotWritten { reason }
    } else {
        PublishOutcome::Unknown { reason }
    }
}

/// Whether the connection was refused, so that no byte was sent.
fn is_connection_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if error.downcast_ref::<io::Error>().is_some_and(refused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Text of an error, with its causes.
pub(super) fn error_text<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let Some(code) = error.code() {
        let word = if THROTTLING_CODES.contains(&code) { "throttled: " } else { "" };
        return format!("{word}{code}: {}", error.message().unwrap_or_default());
    }
    let is_late = matches!(error, SdkError::TimeoutError(_));
    let mut text = if is_late { "timeout: no response".to_owned() } else { error.to_string() };
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = error.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        cause = error.source();
    }
    text
}

/// Whether the error is throttling, so that a read may be retried.
pub(super) fn is_throttled<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code().is_some_and(|code| THROTTLING_CODES.contains(&code))
}

/// Whether the stream does not exist.
pub(super) fn is_absent<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code() == Some("ResourceNotFoundException")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: Option<&str>, shard: Option<&str>, sequence: Option<&str>) -> PublishOutcome {
        let entry = PutRecordsResultEntry::builder()
            .set_error_code(code.map(str::to_owned))
            .set_shard_id(shard.map(str::to_owned))
            .set_sequence_number(sequence.map(str::to_owned));
        record("t", &entry.build())
    }

    #[test]
    fn records_of_one_request_are_classified_individually() {
        let committed = entry(None, Some("shardId-000000000012"), Some("4957"));
        assert!(
            matches!(&committed, PublishOutcome::Committed(at) if at.partition == 12 && at.offset == "4957")
        );
        let throttled = entry(Some("ProvisionedThroughputExceededException"), None, None);
        assert!(
            matches!(&throttled, PublishOutcome::NotWritten { reason } if reason.contains("throttled"))
        );
        for (code, shard, sequence) in [
            (Some("InternalFailure"), None, None),
            (Some("SomethingNew"), Some("shardId-000000000000"), Some("1")),
            (None, None, Some("1")),
            (None, Some("shardId-000000000000"), None),
            (None, Some("shardId-000000000000"), Some("not a number")),
        ] {
            let unknown = entry(code, shard, sequence);
            assert!(matches!(unknown, PublishOutcome::Unknown { .. }), "{code:?}: {unknown:?}");
        }
    }
}
