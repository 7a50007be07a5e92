//! Looking: searches by time and reads by sequence, over consumers that last as long as the look.

use std::collections::HashSet;
use std::time::Duration;

use admit_core::{Millis, with_causes};
use async_nats::datetime;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::{Info, State};
use futures_util::StreamExt as _;

use super::link::Session;
use super::stream::{look, name_of};
use super::{Options, PARTITION, header};
use crate::port::{BusError, Found, OffsetKind, Record, Reference, Sought};
use crate::window::{Window, windows};

/// Messages asked for at a time.
const BATCH: usize = 1_000;
/// Messages asked for at a time where their payload comes too.
const READ_BATCH: usize = 200;
/// A consumer that nobody asks is forgotten by the server after this.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Payload bytes after which a read returns what it has.
const READ_BYTES_MAX: usize = 16 << 20;

/// Searches for messages of one topic. The number is a search's place in the answer.
pub(super) async fn find(
    session: &Session,
    options: &Options,
    topic: &str,
    sought: &[(usize, &Sought)],
) -> Vec<(usize, Found)> {
    let cannot_tell = |reason: String| {
        sought
            .iter()
            .map(|(place, _)| (*place, Found::CannotTell { reason: reason.clone() }))
            .collect()
    };
    let info = match look(&session.context, &name_of(options, topic)).await {
        Ok(Some(info)) => info,
        // It was perhaps there when it was published to.
        Ok(None) => {
            return cannot_tell(format!("the stream {} is not there", name_of(options, topic)));
        }
        Err(reason) => return cannot_tell(format!("nats cannot be asked: {reason}")),
    };
    let mut found = Vec::with_capacity(sought.len());
    for mut window in windows(sought, options.clock_slack) {
        let searched = search(session, options, &info, topic, &mut window).await;
        found.append(&mut window.end(&searched));
    }
    // What was published before there was this stream may be in one that somebody has deleted.
    let made = info.created.unix_timestamp_nanos() / 1_000_000;
    let is_earlier = |one: &Sought| i128::from(one.to.0) < made;
    let earlier: HashSet<usize> =
        sought.iter().filter(|(_, one)| is_earlier(one)).map(|(place, _)| *place).collect();
    for (place, found) in &mut found {
        if *found == Found::Absent && earlier.contains(place) {
            *found = Found::CannotTell { reason: "the stream was made after that time".to_owned() };
        }
    }
    found
}

/// Reads the headers of every message in a range. The error says why it could not come to the end.
async fn search(
    session: &Session,
    options: &Options,
    info: &Info,
    topic: &str,
    window: &mut Window<'_>,
) -> Result<(), String> {
    let start_time = datetime::from_nanos(i128::from(window.from.max(0)) * 1_000_000)
        .map_err(|_| "the range begins at no time".to_owned())?;
    let mut look = Look::begin(
        session,
        &info.config.name,
        pull::Config {
            deliver_policy: DeliverPolicy::ByStartTime { start_time },
            headers_only: true,
            ..consumer()
        },
    )
    .await?;
    let (mut read, mut span) = (0, Span::default());
    let searched = loop {
        let batch = match look.next(BATCH).await {
            Ok(batch) if batch.is_empty() => {
                break span.check_to_the_end(session, info, window.from).await;
            }
            Ok(batch) => batch,
            Err(reason) => break Err(reason),
        };
        read += batch.len() as u64;
        let is_over = batch.last().is_some_and(|one| one.stamped.0 > window.to);
        for one in &batch {
            span.add(one.sequence);
            window.see(header::dedupe_key(one.headers()), || one.reference(topic));
        }
        if is_over {
            break span.check_whole(session, info).await;
        }
        if read >= options.find_messages_max {
            break Err(format!("more than {read} messages were published in that time"));
        }
    };
    look.end().await;
    match forgotten(&info.state, window.from) {
        Some(reason) => Err(reason),
        None => searched,
    }
}

/// The sequences that a search has seen. A stream numbers without gaps, so where one is missing
/// somebody has deleted a message, and it may have been the one that is sought.
#[derive(Debug, Default)]
struct Span {
    first: Option<u64>,
    last: u64,
    has_gap: bool,
}

impl Span {
    fn add(&mut self, sequence: u64) {
        self.has_gap |= self.first.is_some() && sequence != self.last + 1;
        self.first.get_or_insert(sequence);
        self.last = sequence;
    }

    /// Whether nothing is missing between the beginning of the range and what was seen last.
    async fn check_whole(&self, session: &Session, info: &Info) -> Result<(), String> {
        let has_deleted = info.state.deleted_count.is_some_and(|deleted| deleted > 0);
        let before = self.first.map_or(info.state.last_sequence, |first| first - 1);
        let is_missing = has_deleted
            && before >= info.state.first_sequence
            && !is_there(session, &info.config.name, before).await?;
        match self.has_gap || is_missing {
            true => Err("messages of that time were deleted from the stream".to_owned()),
            false => Ok(()),
        }
    }

    /// The same, up to where the stream ended when the search began. Whoever was asked may be a
    /// replica that has not got that far.
    async fn check_to_the_end(
        &self,
        session: &Session,
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
            return Err("the last message of the stream was not sent, or is deleted".to_owned());
        }
        self.check_whole(session, info).await
    }
}

/// Whether the stream still has the message with this sequence.
async fn is_there(session: &Session, stream: &str, sequence: u64) -> Result<bool, String> {
    let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: sequence };
    let config = pull::Config { deliver_policy, headers_only: true, ..consumer() };
    let mut look = Look::begin(session, stream, config).await?;
    let next = look.next(1).await;
    look.end().await;
    Ok(next?.first().is_some_and(|one| one.sequence == sequence))
}

/// Whether the stream may have had messages of that time and let go of them.
fn forgotten(state: &State, from: i64) -> Option<String> {
    let has_let_go = state.first_sequence > 1 && state.last_sequence > 0;
    let kept_from = match state.messages {
        0 => state.last_timestamp,
        _ => state.first_timestamp,
    };
    let kept_from = kept_from.unix_timestamp_nanos() / 1_000_000;
    (has_let_go && kept_from > i128::from(from))
        .then(|| "the stream has let go of messages of that time".to_owned())
}

/// Reads messages of a topic from a sequence on.
pub(super) async fn read(
    session: &Session,
    options: &Options,
    topic: &str,
    from: u64,
    rows_max: usize,
) -> Result<Vec<Record>, BusError> {
    let unavailable = |reason: String| BusError::Unavailable { reason, source: None };
    let name = name_of(options, topic);
    let info = match look(&session.context, &name).await.map_err(unavailable)? {
        Some(info) => info,
        None => return Ok(Vec::new()),
    };
    if from > info.state.last_sequence.saturating_add(1) {
        return Err(BusError::Damaged {
            place: format!("the stream {name}"),
            reason: format!(
                "it ends at {}, before {from}: it is not the stream that was read before",
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
    let mut look = Look::begin(session, &name, config).await.map_err(unavailable)?;
    let (mut records, mut bytes) = (Vec::new(), 0);
    let done = loop {
        let wanted = READ_BATCH.min(rows_max - records.len());
        match look.next(wanted).await {
            Ok(batch) if batch.is_empty() => break Ok(()),
            Ok(batch) => records.extend(batch.into_iter().map(|one| {
                bytes += one.message.payload.len();
                Record {
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
    look.end().await;
    done.map(|()| records)
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

/// One pass over a stream, in its order and without a gap.
struct Look<'s> {
    session: &'s Session,
    stream: String,
    consumer: Consumer<pull::Config>,
    /// Messages that the consumer has handed out.
    delivered: u64,
    /// Messages that are still to come, as the server last said.
    pending: u64,
}

/// A message of a stream.
struct Seen {
    message: async_nats::jetstream::Message,
    sequence: u64,
    stamped: Millis,
}

impl Seen {
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

impl<'s> Look<'s> {
    async fn begin(
        session: &'s Session,
        stream: &str,
        config: pull::Config,
    ) -> Result<Self, String> {
        let made = session.context.create_consumer_on_stream(config, stream).await;
        let consumer =
            made.map_err(|error| format!("nats makes no consumer: {}", with_causes(&error)))?;
        let pending = consumer.cached_info().num_pending;
        Ok(Self { session, stream: stream.to_owned(), consumer, delivered: 0, pending })
    }

    /// The next messages, at most so many; none when what was there at the start has been seen.
    async fn next(&mut self, messages_max: usize) -> Result<Vec<Seen>, String> {
        if self.pending == 0 || messages_max == 0 {
            return Ok(Vec::new());
        }
        let fetched = self.consumer.fetch().max_messages(messages_max).messages().await;
        let mut fetched =
            fetched.map_err(|error| format!("nats sends nothing: {}", with_causes(&error)))?;
        let mut seen = Vec::with_capacity(messages_max.min(BATCH));
        while let Some(message) = fetched.next().await {
            let message = message.map_err(|error| format!("nats stopped sending: {error}"))?;
            let info = message.info().map_err(|error| format!("no place in a stream: {error}"))?;
            self.delivered += 1;
            if info.consumer_sequence != self.delivered {
                return Err("a message was lost on the way here".to_owned());
            }
            self.pending = info.pending;
            let millis = info.published.unix_timestamp_nanos() / 1_000_000;
            let stamped = Millis(i64::try_from(millis).unwrap_or(i64::MAX));
            let sequence = info.stream_sequence;
            seen.push(Seen { message, sequence, stamped });
        }
        if seen.is_empty() {
            return Err("nats has more messages and did not send them in time".to_owned());
        }
        Ok(seen)
    }

    /// Lets the server forget the consumer. It would by itself, after a while.
    async fn end(self) {
        let name = &self.consumer.cached_info().name;
        let stream = self.session.context.get_stream_no_info(&self.stream).await;
        let deleted = match stream {
            Ok(stream) => stream.delete_consumer(name).await.map_err(|error| with_causes(&error)),
            Err(error) => Err(with_causes(&error)),
        };
        if let Err(reason) = deleted {
            tracing::debug!(reason, "a consumer was left to expire");
        }
    }
}
