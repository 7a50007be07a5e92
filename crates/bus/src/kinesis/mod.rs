//! Amazon Kinesis: one stream per topic, one shard per partition.
//!
//! Outcomes of a message:
//!
//! ```text
//! invalid message, or too large                         -> not written
//! queued, and the caller has gone away                  -> never sent
//! connection refused, or refused by Kinesis (4xx)       -> not written
//! its shard is throttled                                -> not written
//! Kinesis fails (5xx, InternalFailure), the connection
//!   is lost, or the request times out                   -> unknown
//! Kinesis returns its shard and sequence number        -> committed there
//! ```
//!
//! The client sends each request once and never retries. How a message becomes a record: [`frame`];
//! how order is kept: `stream_queue`.

mod classify_result;
mod frame;
mod open;
mod scan;
mod shards;
mod stream_queue;

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
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchQuery,
    SearchResult, StoredMessage,
};
use classify_result::{error_text, is_absent};
use frame::Frame;
use shards::ShardCache;
use stream_queue::{QueuedMessage, StreamQueue};

pub use frame::MARK;
pub use open::{KinesisKeys, OpenError, Options};

/// Maximum records per [`Bus::read`].
pub const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a [`Bus::read`] returns early.
pub const READ_BYTES_MAX: usize = 16 << 20;
/// Pause before a throttled read is retried; Kinesis allows five reads per second and shard.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Bus on Amazon Kinesis.
pub struct KinesisBus {
    state: Arc<BusState>,
}

struct BusState {
    client: Client,
    options: Options,
    queues: Mutex<HashMap<String, StreamQueue>>,
    /// Requests in flight. They complete even if no caller waits for them any more.
    requests: Mutex<JoinSet<()>>,
    capacity: Arc<Semaphore>,
    shards: ShardCache,
}

impl KinesisBus {
    /// Opens the bus, and checks that these topics can be published to. Read-only callers pass
    /// none.
    ///
    /// # Errors
    /// When a stream does not exist, or Kinesis does not respond.
    pub async fn open(options: Options, topics: &[String]) -> Result<Self, OpenError> {
        let client = open::client(&options).await;
        open::check_streams(&client, &options, topics).await?;
        let state = BusState {
            client,
            capacity: Arc::new(Semaphore::new(options.in_flight_max.max(1))),
            options,
            queues: Mutex::default(),
            requests: Mutex::default(),
            shards: ShardCache::default(),
        };
        Ok(Self { state: Arc::new(state) })
    }
}

impl Bus for KinesisBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            // The semaphore is fair, so the order of calls is kept.
            for chunk in chunks(batch, self.state.options.in_flight_max) {
                outcomes.extend(self.state.enqueue(chunk).await);
            }
            join_all(outcomes.into_iter().map(PendingOutcome::wait)).await
        })
    }

    fn find(&self, queries: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        Box::pin(async move {
            let mut topics: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (index, query) in queries.iter().enumerate() {
                topics.entry(&query.topic).or_default().push(index);
            }
            let mut results = vec![SearchResult::Absent; queries.len()];
            for (topic, indexes) in topics {
                let topic_queries: Vec<&SearchQuery> =
                    indexes.iter().map(|index| &queries[*index]).collect();
                for (index, result) in
                    indexes.iter().zip(self.state.find(topic, &topic_queries).await)
                {
                    results[*index] = result;
                }
            }
            results
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let (topic, from) = (topic.to_owned(), from.to_owned());
        Box::pin(async move { self.state.read(&topic, partition, &from, rows_max).await })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let streams: Vec<String> =
            topics.iter().map(|topic| self.state.options.stream(topic)).collect();
        Box::pin(async move { self.state.health(&streams).await })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::KinesisSequence
    }

    fn delivery_timeout(&self) -> Duration {
        self.state.options.delivery_timeout
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

/// Outcome that is known, or pending.
enum PendingOutcome {
    Now(PublishOutcome),
    Later(oneshot::Receiver<PublishOutcome>),
}

impl PendingOutcome {
    async fn wait(self) -> PublishOutcome {
        match self {
            Self::Now(published) => published,
            // The request task ended without a result, and may have sent the message.
            Self::Later(reply) => {
                reply.await.unwrap_or_else(|_| unknown("the request ended without a result"))
            }
        }
    }
}

impl BusState {
    fn queues(&self) -> MutexGuard<'_, HashMap<String, StreamQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues messages as soon as there is capacity. Returns their pending outcomes.
    async fn enqueue(self: &Arc<Self>, messages: Vec<Message>) -> Vec<PendingOutcome> {
        let bytes_max = self.options.message_bytes_max;
        let framed: Vec<(Message, Result<Frame, String>)> = messages
            .into_iter()
            .map(|message| {
                let frame = Frame::of(&message, bytes_max);
                (message, frame)
            })
            .collect();
        let permits = framed.iter().filter(|(_, frame)| frame.is_ok()).count();
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let Ok(mut capacity) = Arc::clone(&self.capacity).acquire_many_owned(permits).await else {
            return framed
                .iter()
                .map(|_| PendingOutcome::Now(unknown("the bus is closed")))
                .collect();
        };
        let mut streams = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(framed.len());
        {
            let mut queues = self.queues();
            for (message, frame) in framed {
                let frame = match frame {
                    Ok(frame) => frame,
                    Err(reason) => {
                        outcomes.push(PendingOutcome::Now(PublishOutcome::NotWritten { reason }));
                        continue;
                    }
                };
                let stream = self.options.stream(&message.topic);
                let (reply, outcome) = oneshot::channel();
                let queued = QueuedMessage { message, frame, reply, _permit: capacity.split(1) };
                queues.entry(stream.clone()).or_default().push(queued);
                streams.insert(stream);
                outcomes.push(PendingOutcome::Later(outcome));
            }
        }
        for stream in &streams {
            self.send_next(stream);
        }
        outcomes
    }

    /// Sends all requests of a stream that may be sent now.
    fn send_next(self: &Arc<Self>, stream: &str) {
        loop {
            let next = self
                .queues()
                .get_mut(stream)
                .and_then(|queue| queue.next(self.options.requests_max));
            let Some(next) = next else { return };
            let (state, stream) = (Arc::clone(self), stream.to_owned());
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            while requests.try_join_next().is_some() {}
            requests.spawn(async move { state.send(&stream, next).await });
        }
    }

    /// Sends one request, once, and delivers the outcomes.
    async fn send(self: Arc<Self>, stream: &str, messages: Vec<QueuedMessage>) {
        let published = self.put(stream, &messages).await;
        if let Some(queue) = self.queues().get_mut(stream) {
            queue.request_done(messages.iter().map(|queued| &*queued.message.partition_key));
        }
        // Send the next messages of these keys before delivering: a caller with its outcome may
        // publish more.
        self.send_next(stream);
        for (queued, published) in messages.into_iter().zip(published) {
            // The caller may have gone away; the record stays on the bus.
            drop(queued.reply.send(published));
        }
    }

    async fn put(&self, stream: &str, messages: &[QueuedMessage]) -> Vec<PublishOutcome> {
        let records = messages.iter().map(|queued| {
            PutRecordsRequestEntry::builder()
                .data(Blob::new(queued.message.payload.to_vec()))
                .partition_key(&queued.frame.key)
                .explicit_hash_key(&queued.frame.hash_key)
                .build()
                .expect("data and key are given")
        });
        let records = Some(records.collect());
        let request = self.client.put_records().stream_name(stream).set_records(records);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return vec![classify_result::failed(&error); messages.len()],
        };
        let entries = response.records();
        if entries.len() != messages.len() {
            let reason = "kinesis returned results for a different number of records";
            return vec![unknown(reason); messages.len()];
        }
        let both = messages.iter().zip(entries);
        both.map(|(queued, entry)| classify_result::record(&queued.message.topic, entry)).collect()
    }

    async fn health(&self, streams: &[String]) -> BusHealth {
        if streams.is_empty() {
            return match self.client.list_streams().limit(1).send().await {
                Ok(_) => BusHealth::Up,
                Err(error) => BusHealth::Down { reason: error_text(&error) },
            };
        }
        let probes = streams.iter().map(async |stream| {
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
                    Some(BusHealth::Down { reason: format!("stream {stream} does not exist") })
                }
                // A throttled probe proves nothing about publishing.
                Err(error) if classify_result::is_throttled(&error) => {
                    Some(BusHealth::Unknown { reason: error_text(&error) })
                }
                Err(error) => Some(BusHealth::Down { reason: error_text(&error) }),
            }
        });
        let results = join_all(probes).await;
        let mut results: Vec<BusHealth> = results.into_iter().flatten().collect();
        let down = results.iter().position(|health| matches!(health, BusHealth::Down { .. }));
        match down.or((!results.is_empty()).then_some(0)) {
            Some(index) => results.swap_remove(index),
            None => BusHealth::Up,
        }
    }
}

fn unknown(reason: &str) -> PublishOutcome {
    PublishOutcome::Unknown { reason: reason.to_owned() }
}

/// Pauses before a retry; false if the deadline would pass.
async fn pause_before_retry(deadline: Instant) -> bool {
    if Instant::now() + RETRY_PAUSE >= deadline {
        return false;
    }
    sleep(RETRY_PAUSE).await;
    true
}
