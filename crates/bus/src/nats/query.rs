//! Searches by time and reads by sequence, over short-lived consumers.

use std::collections::HashSet;
use std::time::Duration;

use admit_core::{Millis, with_causes};
use async_nats::datetime;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::{Info, State};
use futures_util::StreamExt as _;

use super::link::NatsSession;
use super::stream::{self, name_of};
use super::{Options, PARTITION, header};
use crate::port::{BusError, OffsetKind, Reference, SearchQuery, SearchResult, StoredMessage};
use crate::search_window::{SearchWindow, search_windows};

/// Messages per fetch of headers only.
const BATCH: usize = 1_000;
/// Messages per fetch with payload.
const READ_BATCH: usize = 200;
/// Idle timeout after which the server deletes a consumer.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Payload bytes after which a read returns early.
const READ_BYTES_MAX: usize = 16 << 20;

/// Runs the queries of one topic; each comes and goes with its index.
pub(super) async fn find(
    session: &NatsSession,
    options: &Options,
    topic: &str,
    queries: &[(usize, &SearchQuery)],
) -> Vec<(usize, SearchResult)> {
    let unknown = |reason: String| {
        queries
            .iter()
            .map(|(index, _)| (*index, SearchResult::Unknown { reason: reason.clone() }))
            .collect()
    };
    let info = match stream::info(&session.context, &name_of(options, topic)).await {
        Ok(Some(info)) => info,
        // The stream may have existed when the message was published.
        Ok(None) => {
            return unknown(format!("stream {} does not exist", name_of(options, topic)));
        }
        Err(reason) => return unknown(format!("nats is not available: {reason}")),
    };
    let mut found = Vec::with_capacity(queries.len());
    for mut window in search_windows(queries, options.clock_slack) {
        let searched = search(session, options, &info, topic, &mut window).await;
        found.append(&mut window.finish(&searched));
    }
    // Messages published before this stream was created may have been in a deleted stream of that
    // name.
    let created_at = info.created.unix_timestamp_nanos() / 1_000_000;
    let is_before_creation = |one: &SearchQuery| i128::from(one.to.0) < created_at;
    let before_creation: HashSet<usize> = queries
        .iter()
        .filter(|(_, one)| is_before_creation(one))
        .map(|(index, _)| *index)
        .collect();
    for (index, found) in &mut found {
        if *found == SearchResult::Absent && before_creation.contains(index) {
            *found = SearchResult::Unknown {
                reason: "the stream was created after that time".to_owned(),
            };
        }
    }
    found
}

/// Scans the headers of every message in a window. The error is the reason why the scan is
/// incomplete.
async fn search(
    session: &NatsSession,
    options: &Options,
    info: &Info,
    topic: &str,
    window: &mut SearchWindow<'_>,
) -> Result<(), String> {
    let start_time = datetime::from_nanos(i128::from(window.from.max(0)) * 1_000_000)
        .map_err(|_| "invalid start time of the range".to_owned())?;
    let mut scan = StreamScan::start(
        session,
        &info.config.name,
        pull::Config {
            deliver_policy: DeliverPolicy::ByStartTime { start_time },
            headers_only: true,
            ..consumer()
        },
    )
    .await?;
    let (mut read, mut span) = (0, SequenceSpan::default());
    let searched = loop {
        let batch = match scan.next(BATCH).await {
            Ok(batch) if batch.is_empty() => {
                break span.check_to_the_end(session, info, window.from).await;
            }
            Ok(batch) => batch,
            Err(reason) => break Err(reason),
        };
        read += batch.len() as u64;
        let is_past_range = batch.last().is_some_and(|one| one.stamped.0 > window.to);
        for one in &batch {
            span.add(one.sequence);
            window.record(header::dedupe_key(one.headers()), || one.reference(topic));
        }
        if is_past_range {
            break span.check_whole(session, info).await;
        }
        if read >= options.find_messages_max {
            break Err(format!(
                "search limit exceeded: more than {read} messages in that time range"
            ));
        }
    };
    scan.finish().await;
    match removed_by_retention(&info.state, window.from) {
        Some(reason) => Err(reason),
        None => searched,
    }
}

/// Sequences seen by a scan. A stream numbers without gaps, so a gap means deleted messages, one of
/// which may be the wanted one.
#[derive(Debug, Default)]
struct SequenceSpan {
    first: Option<u64>,
    last: u64,
    has_gap: bool,
}

impl SequenceSpan {
    fn add(&mut self, sequence: u64) {
        self.has_gap |= self.first.is_some() && sequence != self.last + 1;
        self.first.get_or_insert(sequence);
        self.last = sequence;
    }

    /// Checks that no message is missing between the start of the range and the last message seen.
    async fn check_whole(&self, session: &NatsSession, info: &Info) -> Result<(), String> {
        let has_deleted = info.state.deleted_count.is_some_and(|deleted| deleted > 0);
        let before = self.first.map_or(info.state.last_sequence, |first| first - 1);
        let is_missing = has_deleted
            && before >= info.state.first_sequence
            && !is_there(session, &info.config.name, before).await?;
        match self.has_gap || is_missing {
            true => Err("messages of that time range were deleted from the stream".to_owned()),
            false => Ok(()),
        }
    }

    /// Like [`Self::check_whole`], up to the end of the stream when the search began. The
    /// responding replica may lag behind.
    async fn check_to_the_end(
        &self,
        session: &NatsSession,
        info: &Info,
        from: i64,
    ) -> Result<(), String> {
        let state = &info.state;
        let ended = state.last_timestamp.unix_timestamp_nanos() / 1_000_000;
        let is_seen = match self.first {
            Some(_) => self.last >= state.last_sequence,
            None => state.last_sequence == 0 || ended < i128::from(from),
        };
        if !is_seen {
            return Err(
                "the last message of the stream was not delivered, or is deleted".to_owned()
            );
        }
        self.check_whole(session, info).await
    }
}

/// Whether the stream still has the message with this sequence.
async fn is_there(session: &NatsSession, stream: &str, sequence: u64) -> Result<bool, String> {
    let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: sequence };
    let config = pull::Config { deliver_policy, headers_only: true, ..consumer() };
    let mut scan = StreamScan::start(session, stream, config).await?;
    let next = scan.next(1).await;
    scan.finish().await;
    Ok(next?.first().is_some_and(|one| one.sequence == sequence))
}

/// Reason why messages from `from` on may have been removed by retention, if so.
fn removed_by_retention(state: &State, from: i64) -> Option<String> {
    let has_removed = state.first_sequence > 1 && state.last_sequence > 0;
    let oldest = match state.messages {
        0 => state.last_timestamp,
        _ => state.first_timestamp,
    };
    let oldest = oldest.unix_timestamp_nanos() / 1_000_000;
    (has_removed && oldest > i128::from(from))
        .then(|| "retention has removed messages of that time range from the stream".to_owned())
}

/// Reads messages of a topic, starting at a sequence.
pub(super) async fn read(
    session: &NatsSession,
    options: &Options,
    topic: &str,
    from: u64,
    rows_max: usize,
) -> Result<Vec<StoredMessage>, BusError> {
    let unavailable = |reason: String| BusError::Unavailable { reason, source: None };
    let name = name_of(options, topic);
    let info = match stream::info(&session.context, &name).await.map_err(unavailable)? {
        Some(info) => info,
        None => return Ok(Vec::new()),
    };
    if from > info.state.last_sequence.saturating_add(1) {
        return Err(BusError::Damaged {
            place: format!("stream {name}"),
            reason: format!(
                "it ends at {}, before {from}: the stream was recreated",
                info.state.last_sequence
            ),
        });
    }
    if rows_max == 0 || info.state.messages == 0 || from > info.state.last_sequence {
        return Ok(Vec::new());
    }
    let start_sequence = from.max(info.state.first_sequence).max(1);
    let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
    let config = pull::Config { deliver_policy, ..consumer() };
    let mut scan = StreamScan::start(session, &name, config).await.map_err(unavailable)?;
    let (mut records, mut bytes) = (Vec::new(), 0);
    let outcome = loop {
        let messages_max = READ_BATCH.min(rows_max - records.len());
        match scan.next(messages_max).await {
            Ok(batch) if batch.is_empty() => break Ok(()),
            Ok(batch) => records.extend(batch.into_iter().map(|one| {
                bytes += one.message.payload.len();
                StoredMessage {
                    reference: one.reference(topic),
                    partition_key: header::partition_key(one.headers()),
                    dedupe_key: header::dedupe_key(one.headers()).map(str::to_owned),
                    payload: one.message.message.payload,
                }
            })),
            Err(reason) => break Err(unavailable(reason)),
        }
        if records.len() >= rows_max || bytes >= READ_BYTES_MAX {
            break Ok(());
        }
    };
    scan.finish().await;
    outcome.map(|()| records)
}

fn consumer() -> pull::Config {
    pull::Config {
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: IDLE_MAX,
        ..pull::Config::default()
    }
}

/// Ordered, gapless scan of a stream.
struct StreamScan<'s> {
    session: &'s NatsSession,
    stream: String,
    consumer: Consumer<pull::Config>,
    /// Messages delivered by the consumer.
    delivered: u64,
    /// Messages still pending, as last reported by the server.
    pending: u64,
}

/// A message read from a stream.
struct StreamMessage {
    message: async_nats::jetstream::Message,
    sequence: u64,
    stamped: Millis,
}

impl StreamMessage {
    fn headers(&self) -> Option<&async_nats::HeaderMap> {
        self.message.headers.as_ref()
    }

    fn reference(&self, topic: &str) -> Reference {
        Reference {
            topic: topic.to_owned(),
            partition: PARTITION,
            offset: self.sequence.to_string(),
            offset_kind: OffsetKind::NatsSequence,
            published_at: header::published_at(self.headers()).or(Some(self.stamped)),
        }
    }
}

impl<'s> StreamScan<'s> {
    async fn start(
        session: &'s NatsSession,
        stream: &str,
        config: pull::Config,
    ) -> Result<Self, String> {
        let created = session.context.create_consumer_on_stream(config, stream).await;
        let consumer = created
            .map_err(|error| format!("failed to create a consumer: {}", with_causes(&error)))?;
        let pending = consumer.cached_info().num_pending;
        Ok(Self { session, stream: stream.to_owned(), consumer, delivered: 0, pending })
    }

    /// The next messages, at most `messages_max`; empty when everything present at the start was
    /// read.
    async fn next(&mut self, messages_max: usize) -> Result<Vec<StreamMessage>, String> {
        if self.pending == 0 || messages_max == 0 {
            return Ok(Vec::new());
        }
        let fetched = self.consumer.fetch().max_messages(messages_max).messages().await;
        let mut fetched = fetched
            .map_err(|error| format!("failed to fetch messages: {}", with_causes(&error)))?;
        let mut seen = Vec::with_capacity(messages_max.min(BATCH));
        while let Some(message) = fetched.next().await {
            let message = message.map_err(|error| format!("failed to fetch messages: {error}"))?;
            let info = message
                .info()
                .map_err(|error| format!("a message has no stream sequence: {error}"))?;
            self.delivered += 1;
            if info.consumer_sequence != self.delivered {
                return Err("a message was lost in delivery".to_owned());
            }
            self.pending = info.pending;
            let millis = info.published.unix_timestamp_nanos() / 1_000_000;
            let stamped = Millis(i64::try_from(millis).unwrap_or(i64::MAX));
            let sequence = info.stream_sequence;
            seen.push(StreamMessage { message, sequence, stamped });
        }
        if seen.is_empty() {
            return Err("timeout: nats has more messages and did not deliver them".to_owned());
        }
        Ok(seen)
    }

    /// Deletes the consumer. The server would do so after the idle timeout.
    async fn finish(self) {
        let name = &self.consumer.cached_info().name;
        let stream = self.session.context.get_stream_no_info(&self.stream).await;
        let deleted = match stream {
            Ok(stream) => stream.delete_consumer(name).await.map_err(|error| with_causes(&error)),
            Err(error) => Err(with_causes(&error)),
        };
        if let Err(reason) = deleted {
            tracing::debug!(reason, "failed to delete a consumer; it will expire");
        }
    }
}
