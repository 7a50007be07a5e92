//! Amazon Kinesis: a stream for each topic, a shard for each partition.
//!
//! What can happen to a message:
//!
//! ```text
//! it is no message, or too large                        -> not written
//! it waits for its turn and nobody waits for it         -> never sent
//! the connection is refused, or Kinesis refuses (4xx)   -> not written
//! its shard is throttled                                -> not written
//! Kinesis fails (5xx, InternalFailure), the connection
//!   is cut, or there is no answer in time               -> unknown
//! Kinesis names its shard and its sequence number       -> committed there
//! ```
//!
//! The client sends a request once; nobody below this sends it again. How a message is a record is in
//! [`frame`], how order is kept in `lanes`.

mod frame;
mod judge;
mod lanes;
mod open;
mod scan;
mod shards;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, StreamStatus};
use futures_util::future::join_all;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::port::{
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Sought,
};
use frame::Frame;
use judge::{is_absent, said};
use lanes::{Lane, Waiting};
use shards::Shards;

pub use frame::MARK;
pub use open::{Keys, OpenError, Options};

/// Most records that one [`Bus::read`] returns, whatever it is asked for.
pub const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a [`Bus::read`] returns what it has.
pub const READ_BYTES_MAX: usize = 16 << 20;
/// Kinesis lets a shard be read five times a second.
const MOMENT: Duration = Duration::from_millis(250);

/// A bus on Amazon Kinesis.
pub struct KinesisBus {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    options: Options,
    lanes: Mutex<HashMap<String, Lane>>,
    /// Requests on their way. They end by themselves, whoever still waits for them.
    requests: Mutex<JoinSet<()>>,
    room: Arc<Semaphore>,
    shards: Shards,
}

impl KinesisBus {
    /// Opens the bus, and makes sure that these topics can be published to. Readers name none.
    ///
    /// # Errors
    /// When a stream is not there, or Kinesis does not answer.
    pub async fn open(options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let client = open::client(&options).await;
        open::check_streams(&client, &options, topics).await?;
        let shared = Shared {
            client,
            room: Arc::new(Semaphore::new(options.in_flight_max.max(1))),
            options,
            lanes: Mutex::default(),
            requests: Mutex::default(),
            shards: Shards::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Bus for KinesisBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(batch.len());
            // Whoever comes first gets room first, so the order of calls is kept.
            for chunk in chunks(batch, self.shared.options.in_flight_max) {
                answers.extend(self.shared.hand_over(chunk).await);
            }
            join_all(answers.into_iter().map(Answer::said)).await
        })
    }

    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>> {
        Box::pin(async move {
            let mut topics: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (place, one) in sought.iter().enumerate() {
                topics.entry(&one.topic).or_default().push(place);
            }
            let mut answers = vec![Found::Absent; sought.len()];
            for (topic, places) in topics {
                let own: Vec<&Sought> = places.iter().map(|place| &sought[*place]).collect();
                for (place, found) in places.iter().zip(self.shared.find(topic, &own).await) {
                    answers[*place] = found;
                }
            }
            answers
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move { self.shared.read(&topic, partition, &from, rows_max).await })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let streams: Vec<String> =
            topics.iter().map(|topic| self.shared.options.stream(topic)).collect();
        Box::pin(async move { self.shared.health(&streams).await })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::KinesisSequence
    }

    fn delivery_timeout(&self) -> Duration {
        self.shared.options.delivery_timeout
    }
}

fn chunks(batch: Vec<Message>, size: usize) -> Vec<Vec<Message>> {
    let mut batch = batch.into_iter();
    let mut chunks = Vec::new();
    loop {
        let chunk: Vec<Message> = batch.by_ref().take(size.max(1)).collect();
        if chunk.is_empty() {
            return chunks;
        }
        chunks.push(chunk);
    }
}

/// An answer that is there, or will be.
enum Answer {
    Now(Published),
    Later(oneshot::Receiver<Published>),
}

impl Answer {
    async fn said(self) -> Published {
        match self {
            Self::Now(published) => published,
            // Whoever had it is gone without a word, and may have sent it.
            Self::Later(answer) => answer.await.unwrap_or_else(|_| unknown("it was given up")),
        }
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, HashMap<String, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts messages into their lanes as soon as there is room, and gives back their answers to come.
    async fn hand_over(self: &Arc<Self>, messages: Vec<Message>) -> Vec<Answer> {
        let bytes_max = self.options.message_bytes_max;
        let framed: Vec<(Message, Result<Frame, String>)> = messages
            .into_iter()
            .map(|message| {
                let frame = Frame::of(&message, bytes_max);
                (message, frame)
            })
            .collect();
        let wanted = framed.iter().filter(|(_, frame)| frame.is_ok()).count();
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let Ok(mut room) = Arc::clone(&self.room).acquire_many_owned(wanted).await else {
            return framed.iter().map(|_| Answer::Now(unknown("the bus is closed"))).collect();
        };
        let mut streams = BTreeSet::new();
        let mut answers = Vec::with_capacity(framed.len());
        {
            let mut lanes = self.lanes();
            for (message, frame) in framed {
                let frame = match frame {
                    Ok(frame) => frame,
                    Err(reason) => {
                        answers.push(Answer::Now(Published::NotWritten { reason }));
                        continue;
                    }
                };
                let stream = self.options.stream(&message.topic);
                let (answer, answered) = oneshot::channel();
                let waiting = Waiting { message, frame, answer, _room: room.split(1) };
                lanes.entry(stream.clone()).or_default().push(waiting);
                streams.insert(stream);
                answers.push(Answer::Later(answered));
            }
        }
        for stream in &streams {
            self.send_next(stream);
        }
        answers
    }

    /// Sends whatever of a stream may be sent now.
    fn send_next(self: &Arc<Self>, stream: &str) {
        loop {
            let next =
                self.lanes().get_mut(stream).and_then(|lane| lane.next(self.options.requests_max));
            let Some(next) = next else { return };
            let (shared, stream) = (Arc::clone(self), stream.to_owned());
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            while requests.try_join_next().is_some() {}
            requests.spawn(async move { shared.send(&stream, next).await });
        }
    }

    /// Sends one request, once, and tells everybody who waits for it.
    async fn send(self: Arc<Self>, stream: &str, messages: Vec<Waiting>) {
        let published = self.put(stream, &messages).await;
        if let Some(lane) = self.lanes().get_mut(stream) {
            lane.answered(messages.iter().map(|waiting| &*waiting.message.partition_key));
        }
        // The next of these keys are sent first: whoever hears an answer may have more.
        self.send_next(stream);
        for (waiting, published) in messages.into_iter().zip(published) {
            // Whoever asked may have gone away; the record stands all the same.
            drop(waiting.answer.send(published));
        }
    }

    async fn put(&self, stream: &str, messages: &[Waiting]) -> Vec<Published> {
        let records = messages.iter().map(|waiting| {
            PutRecordsRequestEntry::builder()
                .data(Blob::new(waiting.message.payload.to_vec()))
                .partition_key(&waiting.frame.key)
                .explicit_hash_key(&waiting.frame.hash_key)
                .build()
                .expect("data and key are given")
        });
        let records = Some(records.collect());
        let asked = self.client.put_records().stream_name(stream).set_records(records);
        let answered = match asked.send().await {
            Ok(answered) => answered,
            Err(error) => return vec![judge::failed(&error); messages.len()],
        };
        let said = answered.records();
        if said.len() != messages.len() {
            let reason = "kinesis answers for another number of records";
            return vec![unknown(reason); messages.len()];
        }
        let both = messages.iter().zip(said);
        both.map(|(waiting, said)| judge::record(&waiting.message.topic, said)).collect()
    }

    async fn health(&self, streams: &[String]) -> BusHealth {
        if streams.is_empty() {
            return match self.client.list_streams().limit(1).send().await {
                Ok(_) => BusHealth::Up,
                Err(error) => BusHealth::Down { reason: said(&error) },
            };
        }
        let asked = streams.iter().map(async |stream| {
            let described = self.client.describe_stream_summary().stream_name(stream).send().await;
            match described {
                Ok(described) => {
                    let status = described.stream_description_summary().map(|s| s.stream_status());
                    match status {
                        Some(StreamStatus::Active | StreamStatus::Updating) => None,
                        status => {
                            Some(BusHealth::Down { reason: format!("{stream} is {status:?}") })
                        }
                    }
                }
                Err(error) if is_absent(&error) => {
                    Some(BusHealth::Down { reason: format!("there is no stream {stream}") })
                }
                // A question too many says nothing about publishing.
                Err(error) if judge::is_throttled(&error) => {
                    Some(BusHealth::Unknown { reason: said(&error) })
                }
                Err(error) => Some(BusHealth::Down { reason: said(&error) }),
            }
        });
        let found = join_all(asked).await;
        let mut found: Vec<BusHealth> = found.into_iter().flatten().collect();
        let down = found.iter().position(|one| matches!(one, BusHealth::Down { .. }));
        match down.or((!found.is_empty()).then_some(0)) {
            Some(place) => found.swap_remove(place),
            None => BusHealth::Up,
        }
    }
}

fn unknown(reason: &str) -> Published {
    Published::Unknown { reason: reason.to_owned() }
}

/// Waits before a question is asked again, if there is time for it.
async fn wait_a_moment(until: Instant) -> bool {
    if Instant::now() + MOMENT >= until {
        return false;
    }
    sleep(MOMENT).await;
    true
}
