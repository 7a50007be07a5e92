//! Writer thread: owns every log and commits all pending calls as one batch.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io, thread};

use tokio::sync::{mpsc, oneshot, watch};

use super::log::{self, EncodedLines, Log, LogOptions, LogView};
use super::storage::ShortWrite;
use super::{BATCH_BYTES_MAX, Options, PARTITION, line};
use crate::name;
use crate::port::{BusError, Message, OffsetKind, PublishOutcome, Reference};

/// Views of topics: the log, `None` where nothing was published, or the reason why the log is
/// unavailable.
pub(super) type TopicViews = Vec<Result<Option<LogView>, String>>;

/// Command for the writer thread.
pub(super) enum WriterCommand {
    /// Publish a batch.
    Publish { batch: Vec<Message>, reply: oneshot::Sender<Vec<PublishOutcome>> },
    /// View topics, including all messages of earlier commands. A probe also reopens logs that
    /// could not be opened before.
    ViewTopics { topics: Vec<String>, is_probe: bool, reply: oneshot::Sender<TopicViews> },
}

/// A log, or the reason why it is closed.
pub(super) enum LogSlot {
    Open(Log),
    Closed(ClosedLog),
}

/// A log that could not be opened.
pub(super) struct ClosedLog {
    reason: String,
    /// State of the file of a damaged log; the log is read again when it changes.
    file_state_at_failure: Option<FileState>,
}

/// Length and modification time of a log; `None` where there is no file.
type FileState = Option<(u64, SystemTime)>;

impl ClosedLog {
    pub(super) fn new(root: &Path, topic: &str, error: &BusError) -> Self {
        let reason = with_causes(error);
        tracing::error!(topic, reason, "failed to open a bus log");
        let is_damaged = matches!(error, BusError::Damaged { .. });
        Self { reason, file_state_at_failure: is_damaged.then(|| file_state(root, topic)) }
    }
}

fn file_state(root: &Path, topic: &str) -> FileState {
    let file = fs::metadata(root.join(topic).join(log::LOG)).ok()?;
    Some((file.len(), file.modified().ok()?))
}

/// State of the writer thread.
pub(super) struct FileBusWriter {
    pub(super) options: Options,
    pub(super) log_options: LogOptions,
    pub(super) logs: HashMap<Arc<str>, LogSlot>,
    /// Minimum number of lines of each topic, as known outside its log.
    pub(super) acknowledged: HashMap<Arc<str>, u64>,
    pub(super) stop: watch::Sender<Option<String>>,
}

/// Messages of a batch that go to one topic.
struct TopicBatch {
    topic: Arc<str>,
    log: Log,
    lines: EncodedLines,
    /// Index in the batch of each line.
    indexes: Vec<usize>,
    short: Option<ShortWrite>,
    /// `None` until attempted.
    synced: Option<io::Result<()>>,
}

impl FileBusWriter {
    /// Runs commands until all senders are dropped or the bus must stop.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<WriterCommand>) {
        while self.stop.borrow().is_none()
            && let Some(first) = commands.blocking_recv()
        {
            self.run_batch(first, &mut commands);
        }
        commands.close();
        while let Some(command) = commands.blocking_recv() {
            self.run_batch(command, &mut commands);
        }
        self.sync_heads(true);
    }

    /// Syncs the head files, unless a sync failed: then nothing may be written.
    fn sync_heads(&mut self, now: bool) {
        if self.stop.borrow().is_some() {
            return;
        }
        for slot in self.logs.values_mut() {
            if let LogSlot::Open(log) = slot {
                log.sync_head(now);
            }
        }
    }

    /// Publishes all pending batches as one, then replies to view requests.
    fn run_batch(&mut self, first: WriterCommand, commands: &mut mpsc::Receiver<WriterCommand>) {
        let (mut publishes, mut view_requests, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                WriterCommand::ViewTopics { topics, is_probe, reply } => {
                    view_requests.push((topics, is_probe, reply))
                }
                // The caller has gone away, and nothing was written yet.
                WriterCommand::Publish { reply, .. } if reply.is_closed() => {}
                WriterCommand::Publish { batch, reply } => {
                    bytes += batch.iter().map(|message| message.payload.len()).sum::<usize>();
                    publishes.push((batch, reply));
                }
            }
            next = if bytes < BATCH_BYTES_MAX { commands.try_recv().ok() } else { None };
        }
        let messages: Vec<&Message> = publishes.iter().flat_map(|(batch, _)| batch).collect();
        let mut outcomes = Vec::with_capacity(messages.len());
        for batch in batches(&messages) {
            outcomes.extend(self.publish(batch));
        }
        let mut outcomes = outcomes.into_iter();
        for (batch, reply) in publishes {
            let batch_outcomes = outcomes.by_ref().take(batch.len()).collect();
            // The caller may have gone away; the messages stay on the bus.
            reply.send(batch_outcomes).unwrap_or_default();
        }
        for (topics, is_probe, reply) in view_requests {
            let view = |topic: &String| if is_probe { self.probe(topic) } else { self.view(topic) };
            let views = topics.iter().map(view).collect();
            reply.send(views).unwrap_or_default();
        }
        self.sync_heads(false);
    }

    fn view(&self, topic: &str) -> Result<Option<LogView>, String> {
        if let Some(reason) = &*self.stop.borrow() {
            return Err(reason.clone());
        }
        match self.logs.get(topic) {
            Some(LogSlot::Open(log)) => Ok(Some(log.view())),
            Some(LogSlot::Closed(closed)) => Err(closed.reason.clone()),
            None => Ok(None),
        }
    }

    /// Like [`Self::view`], but retries to open a closed log, and verifies that an open log still
    /// has its lines.
    fn probe(&mut self, topic: &str) -> Result<Option<LogView>, String> {
        if self.stop.borrow().is_none()
            && let Some((topic, LogSlot::Closed(_))) = self.logs.get_key_value(topic)
        {
            let topic = Arc::clone(topic);
            let log = self.reopen(&topic)?;
            tracing::info!(topic = &*topic, "a bus log was reopened");
            self.logs.insert(topic, LogSlot::Open(log));
        }
        if let Some(LogSlot::Open(log)) = self.logs.get(topic) {
            log.check_length()?;
        }
        self.view(topic)
    }

    /// Writes and syncs one batch. Returns the outcomes in order.
    fn publish(&mut self, batch: &[&Message]) -> Vec<PublishOutcome> {
        let mut outcomes: Vec<Option<PublishOutcome>> = Vec::new();
        outcomes.resize_with(batch.len(), || None);
        let mut topic_batches = self.group_by_topic(batch, &mut outcomes);
        for topic_batch in &mut topic_batches {
            topic_batch.short = topic_batch.log.write(&topic_batch.lines).err();
        }
        sync(&mut topic_batches);
        for topic_batch in topic_batches {
            self.settle(topic_batch, &mut outcomes);
        }
        outcomes.into_iter().map(|outcome| outcome.expect("every message has an outcome")).collect()
    }

    /// Groups messages by topic as encoded lines, and sets the outcome of those that cannot be
    /// written.
    fn group_by_topic(
        &mut self,
        batch: &[&Message],
        outcomes: &mut [Option<PublishOutcome>],
    ) -> Vec<TopicBatch> {
        let mut topic_batches: Vec<TopicBatch> = Vec::new();
        let mut rejected: HashMap<Arc<str>, String> = HashMap::new();
        for (message_index, message) in batch.iter().enumerate() {
            let added = self.check(message).and_then(|()| {
                if let Some(reason) = rejected.get(&message.topic) {
                    return Err(reason.clone());
                }
                let known =
                    topic_batches.iter().position(|topic_batch| topic_batch.topic == message.topic);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let topic_batch = self
                            .open_topic_batch(&message.topic, topic_batches.len())
                            .inspect_err(|reason| {
                                rejected.insert(message.topic.clone(), reason.clone());
                            })?;
                        topic_batches.push(topic_batch);
                        topic_batches.len() - 1
                    }
                };
                topic_batches[index].add(message_index, message)
            });
            if let Err(reason) = added {
                outcomes[message_index] = Some(PublishOutcome::NotWritten { reason });
            }
        }
        topic_batches
    }

    fn check(&self, message: &Message) -> Result<(), String> {
        if let Some(reason) = &*self.stop.borrow() {
            return Err(format!("{reason}; nothing of this message was written"));
        }
        name::check_topic(&message.topic)
            .map_err(|reason| format!("invalid topic {:?}: {reason}", message.topic))?;
        name::check_partition_key(&message.partition_key)?;
        name::check_dedupe_key(&message.dedupe_key)?;
        let (bytes, bytes_max) = (message.payload.len(), self.options.message_bytes_max);
        if bytes > bytes_max.min(super::MESSAGE_BYTES_CEILING) {
            return Err(format!("the payload has {bytes} bytes, at most {bytes_max} are allowed"));
        }
        Ok(())
    }

    /// Takes the log of a topic for this batch, opening it if necessary; `taken` logs are in use
    /// already.
    fn open_topic_batch(&mut self, topic: &Arc<str>, taken: usize) -> Result<TopicBatch, String> {
        let log = match self.logs.remove(topic) {
            Some(LogSlot::Open(log)) => log,
            None if self.logs.len() + taken >= self.options.topics_max => {
                return Err(format!(
                    "the bus has reached its limit of {} topics",
                    self.options.topics_max
                ));
            }
            Some(LogSlot::Closed(closed)) => {
                self.logs.insert(topic.clone(), LogSlot::Closed(closed));
                self.reopen(topic)?
            }
            None => self.reopen(topic)?,
        };
        let (topic, lines, indexes) = (topic.clone(), EncodedLines::default(), Vec::new());
        Ok(TopicBatch { topic, log, lines, indexes, short: None, synced: None })
    }

    /// Opens a log and recounts its lines. On failure nothing of the messages was written. A
    /// damaged log is not read again until its file changes.
    fn reopen(&mut self, topic: &Arc<str>) -> Result<Log, String> {
        let root = &self.options.root;
        if let Some(LogSlot::Closed(ClosedLog {
            reason,
            file_state_at_failure: Some(file_state_at_failure),
        })) = self.logs.get(topic)
            && *file_state_at_failure == file_state(root, topic)
        {
            return Err(reason.clone());
        }
        let acknowledged = self.acknowledged.get(topic).copied().unwrap_or(0);
        match Log::open(root, topic, &self.log_options, acknowledged) {
            Ok(log) => {
                self.logs.remove(topic);
                Ok(log)
            }
            Err(error) => {
                let closed = ClosedLog::new(root, topic, &error);
                let reason = closed.reason.clone();
                self.logs.insert(topic.clone(), LogSlot::Closed(closed));
                Err(reason)
            }
        }
    }

    /// Sets the outcomes of one topic's messages and puts its log back in a reliable state.
    fn settle(&mut self, mut topic_batch: TopicBatch, outcomes: &mut [Option<PublishOutcome>]) {
        let whole = topic_batch.whole();
        let first = topic_batch.log.index.next;
        for (row, index) in topic_batch.indexes.iter().enumerate() {
            outcomes[*index] = Some(topic_batch.outcome(row, whole, first));
        }
        if let Some(Err(error)) = &topic_batch.synced {
            let reason = format!(
                "a sync of bus topic {} failed ({error}); the state of the log is unknown until a restart",
                topic_batch.topic
            );
            tracing::error!(
                reason,
                messages = topic_batch.indexes.len(),
                "the bus stops: failed sync"
            );
            let closed = ClosedLog { reason: reason.clone(), file_state_at_failure: None };
            self.logs.insert(topic_batch.topic, LogSlot::Closed(closed));
            self.stop.send_replace(Some(reason));
            return;
        }
        let log = match topic_batch.short {
            None => {
                topic_batch.log.commit(&topic_batch.lines, whole);
                Ok(topic_batch.log)
            }
            Some(short) => {
                let error = &short.error;
                tracing::error!(topic = &*topic_batch.topic, %error, written = short.written, of = topic_batch.lines.bytes.len(), "short write to a bus log; reopening it");
                self.acknowledged.insert(topic_batch.topic.clone(), first + whole as u64);
                drop(topic_batch.log);
                self.reopen(&topic_batch.topic)
            }
        };
        // If reopening failed, the log is marked closed already.
        if let Ok(log) = log {
            self.logs.insert(topic_batch.topic, LogSlot::Open(log));
        }
    }
}

impl TopicBatch {
    fn add(&mut self, index: usize, message: &Message) -> Result<(), String> {
        line::encode(message, &mut self.lines.bytes)
            .map_err(|error| format!("the payload is not JSON: {error}"))?;
        self.lines.ends.push((self.lines.bytes.len(), message.at));
        self.indexes.push(index);
        Ok(())
    }

    /// Syncs the log if at least one whole line was written.
    fn sync(&mut self) {
        self.synced = Some(if self.whole() > 0 { self.log.sync() } else { Ok(()) });
    }

    /// Number of lines written completely.
    fn whole(&self) -> usize {
        let written = self.short.as_ref().map_or(self.lines.bytes.len(), |short| short.written);
        self.lines.whole_within(written)
    }

    /// Outcome of the line `row`, if the first `whole` lines were written and the log's next offset
    /// was `first`.
    fn outcome(&self, row: usize, whole: usize, first: u64) -> PublishOutcome {
        if row < whole {
            return match &self.synced {
                Some(Ok(())) => PublishOutcome::Committed(Reference {
                    topic: self.topic.to_string(),
                    partition: PARTITION,
                    offset: (first + row as u64).to_string(),
                    offset_kind: OffsetKind::FileLine,
                    published_at: Some(self.lines.ends[row].1),
                }),
                Some(Err(error)) => PublishOutcome::Unknown {
                    reason: format!("written, but the sync failed: {error}"),
                },
                None => PublishOutcome::Unknown { reason: "written, not synced".to_owned() },
            };
        }
        let short = self.short.as_ref().expect("an unwritten line has an error");
        let start = row.checked_sub(1).map_or(0, |before| self.lines.ends[before].0);
        if short.is_clean() && start >= short.written {
            let reason = format!("nothing was written: {}", short.error);
            return PublishOutcome::NotWritten { reason };
        }
        PublishOutcome::Unknown { reason: format!("possibly written in part: {}", short.error) }
    }
}

/// Splits messages into batches of about [`BATCH_BYTES_MAX`].
fn batches<'a, 'm>(messages: &'a [&'m Message]) -> impl Iterator<Item = &'a [&'m Message]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |message: &&&Message| {
            let fits = bytes < BATCH_BYTES_MAX;
            // In the worst case every byte of a key is escaped.
            bytes += message.payload.len() + 6 * message.partition_key.len() + 256;
            fits
        };
        let (batch, later) = rest.split_at(rest.iter().take_while(fits).count());
        rest = later;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Syncs all logs concurrently: on one disk the syncs share work.
fn sync(topic_batches: &mut [TopicBatch]) {
    if topic_batches.len() > 1 {
        thread::scope(|scope| {
            for topic_batch in topic_batches.iter_mut() {
                // If a thread fails to start, its log is synced below.
                let started = thread::Builder::new().spawn_scoped(scope, || topic_batch.sync());
                drop(started);
            }
        });
    }
    for topic_batch in topic_batches.iter_mut().filter(|topic_batch| topic_batch.synced.is_none()) {
        topic_batch.sync();
    }
}

/// An error and its causes, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
