//! Streams: one per topic, so that the server deduplicates within one topic only.
//!
//! A stream's settings are checked when the bus is opened, or when its topic is first published to.

use std::time::Duration;

use admit_core::with_causes;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

use super::Options;

/// Reason why a topic cannot be published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnusableStream(pub(super) String);

/// The subject of a topic.
pub(super) fn subject_of(options: &Options, topic: &str) -> String {
    format!("{}{topic}", options.subject_prefix)
}

/// The stream name of a topic. Two topics may share a name; the subject distinguishes them.
pub(super) fn name_of(options: &Options, topic: &str) -> String {
    format!("{}{}", options.stream_prefix, topic.replace('.', "_"))
}

/// Gets the stream's info; `None` if it does not exist. The error is the reason why the request
/// failed.
pub(super) async fn info(context: &Context, name: &str) -> Result<Option<Info>, String> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(cause)
                if cause.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(None)
            }
            GetStreamErrorKind::EmptyName
            | GetStreamErrorKind::Request
            | GetStreamErrorKind::InvalidStreamName
            | GetStreamErrorKind::JetStream(_) => Err(with_causes(&error)),
        },
    }
}

/// Creates the stream of a topic if it does not exist, and checks that it keeps what it
/// acknowledges.
pub(super) async fn prepare(
    context: &Context,
    options: &Options,
    topic: &str,
) -> Result<(), UnusableStream> {
    let (name, subject) = (name_of(options, topic), subject_of(options, topic));
    let unusable = |what: String| UnusableStream(format!("stream {name} {what}"));
    let found = info(context, &name).await;
    let info = match found.map_err(|error| unusable(format!("cannot be read: {error}")))? {
        Some(info) => info,
        None if options.create_streams => {
            let config = new_stream_config(options, &name, &subject);
            match context.create_stream(config).await {
                Ok(stream) => {
                    tracing::info!(stream = name, subject, "created a stream");
                    stream.cached_info().clone()
                }
                Err(error) => {
                    return Err(unusable(create_error(&error.kind(), with_causes(&error))));
                }
            }
        }
        None => {
            return Err(unusable(format!(
                "does not exist; create it with the subject {subject}, or set bus.nats.create_streams"
            )));
        }
    };
    if let Some(what) = unusable_reason(&info.config, &subject) {
        return Err(unusable(what));
    }
    if let Some(warning) = warning(&info.config, options) {
        tracing::warn!(stream = name, "{warning}");
    }
    Ok(())
}

/// Whether a stream is full: it is at its message limit, or has no room for a message of average
/// size.
pub(super) fn is_full(info: &Info) -> bool {
    let (config, state) = (&info.config, &info.state);
    let limit = |max: i64| u64::try_from(max).ok().filter(|max| *max > 0);
    let usual = state.bytes.checked_div(state.messages).unwrap_or(0).max(1);
    let is_out_of_room = |max: u64| state.bytes.saturating_add(usual) > max;
    config.discard == DiscardPolicy::New
        && (limit(config.max_bytes).is_some_and(is_out_of_room)
            || limit(config.max_messages).is_some_and(|max| state.messages >= max))
}

fn new_stream_config(options: &Options, name: &str, subject: &str) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        // A full stream rejects new messages instead of deleting unread ones.
        discard: DiscardPolicy::New,
        max_bytes: options.stream_bytes_max.map_or(-1, |max| i64::try_from(max).unwrap_or(-1)),
        max_age: options.keep.unwrap_or(Duration::ZERO),
        duplicate_window: options.duplicate_window,
        num_replicas: options.replicas,
        allow_direct: true,
        description: Some("made by admit".to_owned()),
        ..Config::default()
    }
}

fn create_error(kind: &CreateStreamErrorKind, cause: String) -> String {
    match kind {
        CreateStreamErrorKind::JetStream(error)
            if error.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP =>
        {
            format!("cannot be created: another stream has its subject ({cause})")
        }
        CreateStreamErrorKind::JetStreamUnavailable => {
            "cannot be created: jetstream is not enabled for this account".to_owned()
        }
        CreateStreamErrorKind::JetStream(_)
        | CreateStreamErrorKind::EmptyStreamName
        | CreateStreamErrorKind::InvalidStreamName
        | CreateStreamErrorKind::DomainAndExternalSet
        | CreateStreamErrorKind::TimedOut
        | CreateStreamErrorKind::Response
        | CreateStreamErrorKind::NotFound
        | CreateStreamErrorKind::ResponseParse => format!("cannot be created: {cause}"),
    }
}

/// Reason why a stream cannot be used: it would not keep what it acknowledges, not acknowledge, or
/// deduplicate across topics.
fn unusable_reason(config: &Config, subject: &str) -> Option<String> {
    let keeps_messages = matches!(config.retention, RetentionPolicy::Limits);
    if config.subjects != [subject] {
        return Some(format!(
            "must have {subject} as its only subject, it has {:?}",
            config.subjects
        ));
    }
    if config.storage != StorageType::File {
        return Some("keeps messages in memory; its storage must be file".to_owned());
    }
    if !keeps_messages {
        return Some("deletes messages that were read; its retention must be limits".to_owned());
    }
    if config.no_ack {
        return Some("does not acknowledge; no_ack must be false".to_owned());
    }
    if config.sealed || config.mirror.is_some() {
        return Some("accepts no messages: it is sealed or a mirror".to_owned());
    }
    None
}

/// Warning about a stream that is usable but risky.
fn warning(config: &Config, options: &Options) -> Option<String> {
    if config.persist_mode == Some(PersistenceMode::Async) {
        return Some("this stream acknowledges before it writes: a crash of the server loses acknowledged messages; set its persist mode to default".to_owned());
    }
    let has_limits = [config.max_bytes, config.max_messages, config.max_messages_per_subject]
        .iter()
        .any(|max| *max > 0);
    if has_limits && config.discard == DiscardPolicy::Old {
        return Some("this stream deletes its oldest messages when it is full, read or not; set its discard policy to new, or make sure that its readers keep up".to_owned());
    }
    if config.duplicate_window < options.delivery_timeout {
        return Some(format!(
            "the duplicate window of this stream is only {} ms, while a publish may land for {} ms; raise its duplicate window",
            config.duplicate_window.as_millis(),
            options.delivery_timeout.as_millis()
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_lose_acknowledged_messages_are_refused() {
        let options = Options::new("nats://127.0.0.1:4222");
        let good = new_stream_config(&options, "a_b", "a.b");
        assert_eq!(unusable_reason(&good, "a.b"), None);
        assert_eq!(warning(&good, &options), None);
        let bad = [
            Config { storage: StorageType::Memory, ..good.clone() },
            Config { retention: RetentionPolicy::WorkQueue, ..good.clone() },
            Config { retention: RetentionPolicy::Interest, ..good.clone() },
            Config { no_ack: true, ..good.clone() },
            Config { sealed: true, ..good.clone() },
            Config { subjects: vec!["a_b".to_owned()], ..good.clone() },
            Config { subjects: vec!["a.b".to_owned(), "a.c".to_owned()], ..good.clone() },
        ];
        for config in bad {
            assert!(unusable_reason(&config, "a.b").is_some(), "{config:?}");
        }
    }

    #[test]
    fn risky_stream_settings_are_warned_about() {
        let options = Options::new("nats://127.0.0.1:4222");
        let good = new_stream_config(&options, "a_b", "a.b");
        let early = Config { persist_mode: Some(PersistenceMode::Async), ..good.clone() };
        assert!(
            warning(&early, &options)
                .is_some_and(|warning| warning.contains("acknowledges before"))
        );
        let soon = Config { duplicate_window: Duration::from_secs(1), ..good };
        assert!(
            warning(&soon, &options).is_some_and(|warning| warning.contains("duplicate window"))
        );
        let old = DiscardPolicy::Old;
        let rolling =
            Config { max_messages: 10, discard: old, ..new_stream_config(&options, "a_b", "a.b") };
        assert!(warning(&rolling, &options).is_some_and(|warning| warning.contains("oldest")));
    }
}
