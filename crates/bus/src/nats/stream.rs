//! Streams: one for each topic, so that the server tells copies of one topic only.
//!
//! What a stream must be is checked when the bus is opened, or when its topic is first published to.

use std::time::Duration;

use admit_core::with_causes;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

use super::Options;

/// Why a topic cannot be published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) String);

/// The subject of a topic.
pub(super) fn subject_of(options: &Options, topic: &str) -> String {
    format!("{}{topic}", options.subject_prefix)
}

/// The stream of a topic. Two topics may come to one name; the subject tells which it is.
pub(super) fn name_of(options: &Options, topic: &str) -> String {
    format!("{}{}", options.stream_prefix, topic.replace('.', "_"))
}

/// The stream as it is; `None` if it is not there. The error says why it could not be asked.
pub(super) async fn look(context: &Context, name: &str) -> Result<Option<Info>, String> {
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

/// Makes the stream of a topic if it is not there, and checks that it keeps what it acknowledges.
pub(super) async fn prepare(
    context: &Context,
    options: &Options,
    topic: &str,
) -> Result<(), Unfit> {
    let (name, subject) = (name_of(options, topic), subject_of(options, topic));
    let unfit = |what: String| Unfit(format!("the stream {name} {what}"));
    let looked = look(context, &name).await;
    let info = match looked.map_err(|error| unfit(format!("cannot be asked for: {error}")))? {
        Some(info) => info,
        None if options.create_streams => {
            let made = wanted(options, &name, &subject);
            match context.create_stream(made).await {
                Ok(stream) => {
                    tracing::info!(stream = name, subject, "a stream was made");
                    stream.cached_info().clone()
                }
                Err(error) => return Err(unfit(not_made(&error.kind(), with_causes(&error)))),
            }
        }
        None => {
            return Err(unfit(format!(
                "is not there; make it with the subject {subject}, or set bus.nats.create_streams"
            )));
        }
    };
    if let Some(what) = flaw(&info.config, &subject) {
        return Err(unfit(what));
    }
    if let Some(doubt) = doubt(&info.config, options) {
        tracing::warn!(stream = name, "{doubt}");
    }
    Ok(())
}

/// Whether a stream takes no more: it has as many messages as it may have, or no room for one of
/// the size that they usually are.
pub(super) fn is_full(info: &Info) -> bool {
    let (config, state) = (&info.config, &info.state);
    let limit = |max: i64| u64::try_from(max).ok().filter(|max| *max > 0);
    let usual = state.bytes.checked_div(state.messages).unwrap_or(0).max(1);
    let is_out_of_room = |max: u64| state.bytes.saturating_add(usual) > max;
    config.discard == DiscardPolicy::New
        && (limit(config.max_bytes).is_some_and(is_out_of_room)
            || limit(config.max_messages).is_some_and(|max| state.messages >= max))
}

fn wanted(options: &Options, name: &str, subject: &str) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        // A full stream says so instead of letting go of what nobody has read.
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

fn not_made(kind: &CreateStreamErrorKind, told: String) -> String {
    match kind {
        CreateStreamErrorKind::JetStream(error)
            if error.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP =>
        {
            format!("cannot be made: another stream has its subject ({told})")
        }
        CreateStreamErrorKind::JetStreamUnavailable => {
            "cannot be made: the server has no jetstream for this account".to_owned()
        }
        CreateStreamErrorKind::JetStream(_)
        | CreateStreamErrorKind::EmptyStreamName
        | CreateStreamErrorKind::InvalidStreamName
        | CreateStreamErrorKind::DomainAndExternalSet
        | CreateStreamErrorKind::TimedOut
        | CreateStreamErrorKind::Response
        | CreateStreamErrorKind::NotFound
        | CreateStreamErrorKind::ResponseParse => format!("cannot be made: {told}"),
    }
}

/// What makes a stream useless for us: it would not keep what it acknowledges, not acknowledge, or
/// take messages of other topics for copies.
fn flaw(config: &Config, subject: &str) -> Option<String> {
    let is_kept = matches!(config.retention, RetentionPolicy::Limits);
    if config.subjects != [subject] {
        return Some(format!("must have the one subject {subject}, it has {:?}", config.subjects));
    }
    if config.storage != StorageType::File {
        return Some("keeps messages in memory; it must keep them in files".to_owned());
    }
    if !is_kept {
        return Some("lets go of messages that were read; its retention must be limits".to_owned());
    }
    if config.no_ack {
        return Some("does not acknowledge; no_ack must be false".to_owned());
    }
    if config.sealed || config.mirror.is_some() {
        return Some("takes no messages: it is sealed or a mirror".to_owned());
    }
    None
}

/// What an operator should know about a stream that can be used all the same.
fn doubt(config: &Config, options: &Options) -> Option<String> {
    if config.persist_mode == Some(PersistenceMode::Async) {
        return Some("this stream acknowledges before it writes: a crash of the server loses what was acknowledged; set its persist mode to default".to_owned());
    }
    let has_limits = [config.max_bytes, config.max_messages, config.max_messages_per_subject]
        .iter()
        .any(|max| *max > 0);
    if has_limits && config.discard == DiscardPolicy::Old {
        return Some("this stream lets go of its oldest messages when it is full, read or not; set its discard policy to new, or see that its readers keep up".to_owned());
    }
    if config.duplicate_window < options.delivery_timeout {
        return Some(format!(
            "this stream knows copies for {} ms only, while a publish may land for {} ms; raise its duplicate window",
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
    fn a_stream_that_would_not_keep_what_it_acknowledges_is_refused() {
        let options = Options::new("nats://127.0.0.1:4222");
        let good = wanted(&options, "a_b", "a.b");
        assert_eq!(flaw(&good, "a.b"), None);
        assert_eq!(doubt(&good, &options), None);
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
            assert!(flaw(&config, "a.b").is_some(), "{config:?}");
        }
    }

    #[test]
    fn a_stream_that_acknowledges_early_or_forgets_soon_is_warned_of() {
        let options = Options::new("nats://127.0.0.1:4222");
        let good = wanted(&options, "a_b", "a.b");
        let early = Config { persist_mode: Some(PersistenceMode::Async), ..good.clone() };
        assert!(doubt(&early, &options).is_some_and(|doubt| doubt.contains("acknowledges before")));
        let soon = Config { duplicate_window: Duration::from_secs(1), ..good };
        assert!(doubt(&soon, &options).is_some_and(|doubt| doubt.contains("duplicate window")));
        let old = DiscardPolicy::Old;
        let rolling = Config { max_messages: 10, discard: old, ..wanted(&options, "a_b", "a.b") };
        assert!(doubt(&rolling, &options).is_some_and(|doubt| doubt.contains("oldest")));
    }
}
