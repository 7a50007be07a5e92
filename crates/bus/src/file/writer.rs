//! The writer: one thread that owns every log and makes one batch of whatever waits.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io, thread};

use tokio::sync::{mpsc, oneshot, watch};

use super::log::{self, How, Lines, Log, View};
use super::medium::Short;
use super::{BATCH_BYTES_MAX, Options, PARTITION, line};
use crate::name;
use crate::port::{BusError, Message, OffsetKind, Published, Reference};

/// How topics stand: what is in each, nothing where nobody has published, or why nobody knows.
pub(super) type Looked = Vec<Result<Option<View>, String>>;

/// One call, waiting for the writer.
pub(super) enum Job {
    /// Of `publish`.
    Publish { batch: Vec<Message>, reply: oneshot::Sender<Vec<Published>> },
    /// Of whoever reads. It sees all that was published by calls before it. A probe also opens logs
    /// again that could not be opened before.
    Look { topics: Vec<String>, is_probe: bool, reply: oneshot::Sender<Looked> },
}

/// A log, or why there is none at the moment.
pub(super) enum Slot {
    Open(Log),
    Closed(Closed),
}

/// A log that could not be opened.
pub(super) struct Closed {
    reason: String,
    /// What its file was like, where it is damaged: it is read again when that changes.
    seen: Option<FileState>,
}

/// Length and time of the last change of a log; `None` where there is no file.
type FileState = Option<(u64, SystemTime)>;

impl Closed {
    pub(super) fn new(root: &Path, topic: &str, error: &BusError) -> Self {
        let reason = with_causes(error);
        tracing::error!(topic, reason, "a bus log could not be opened");
        let is_damaged = matches!(error, BusError::Damaged { .. });
        Self { reason, seen: is_damaged.then(|| file_state(root, topic)) }
    }
}

fn file_state(root: &Path, topic: &str) -> FileState {
    let file = fs::metadata(root.join(topic).join(log::LOG)).ok()?;
    Some((file.len(), file.modified().ok()?))
}

/// Everything the writer thread owns.
pub(super) struct Writer {
    pub(super) options: Options,
    pub(super) how: How,
    pub(super) logs: HashMap<Arc<str>, Slot>,
    /// How many lines each topic must have, as far as this is known outside of its log.
    pub(super) acknowledged: HashMap<Arc<str>, u64>,
    pub(super) stop: watch::Sender<Option<String>>,
}

/// The part of a batch that goes to one topic.
struct Part {
    topic: Arc<str>,
    log: Log,
    lines: Lines,
    /// Which message of the batch each line is.
    places: Vec<usize>,
    short: Option<Short>,
    /// `None` until it was tried.
    synced: Option<io::Result<()>>,
}

impl Writer {
    /// Serves jobs until nobody can send any more, or until the bus must stop.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while self.stop.borrow().is_none()
            && let Some(first) = jobs.blocking_recv()
        {
            self.serve(first, &mut jobs);
        }
        jobs.close();
        while let Some(job) = jobs.blocking_recv() {
            self.serve(job, &mut jobs);
        }
        self.sync_heads(true);
    }

    /// After a failed sync nothing is written any more.
    fn sync_heads(&mut self, now: bool) {
        if self.stop.borrow().is_some() {
            return;
        }
        for slot in self.logs.values_mut() {
            if let Slot::Open(log) = slot {
                log.sync_head(now);
            }
        }
    }

    /// Publishes whatever waits, then answers whoever wants to look.
    fn serve(&mut self, first: Job, jobs: &mut mpsc::Receiver<Job>) {
        let (mut publishes, mut looks, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Look { topics, is_probe, reply } => looks.push((topics, is_probe, reply)),
                // Whoever asked has given up, and nothing of it has happened.
                Job::Publish { reply, .. } if reply.is_closed() => {}
                Job::Publish { batch, reply } => {
                    bytes += batch.iter().map(|message| message.payload.len()).sum::<usize>();
                    publishes.push((batch, reply));
                }
            }
            next = if bytes < BATCH_BYTES_MAX { jobs.try_recv().ok() } else { None };
        }
        let messages: Vec<&Message> = publishes.iter().flat_map(|(batch, _)| batch).collect();
        let mut answers = Vec::with_capacity(messages.len());
        for batch in batches(&messages) {
            answers.extend(self.publish(batch));
        }
        let mut answers = answers.into_iter();
        for (batch, reply) in publishes {
            let own = answers.by_ref().take(batch.len()).collect();
            // Whoever asked may have gone away; what is on the bus stays there.
            reply.send(own).unwrap_or_default();
        }
        for (topics, is_probe, reply) in looks {
            let look = |topic: &String| if is_probe { self.probe(topic) } else { self.view(topic) };
            let looked = topics.iter().map(look).collect();
            reply.send(looked).unwrap_or_default();
        }
        self.sync_heads(false);
    }

    fn view(&self, topic: &str) -> Result<Option<View>, String> {
        if let Some(reason) = &*self.stop.borrow() {
            return Err(reason.clone());
        }
        match self.logs.get(topic) {
            Some(Slot::Open(log)) => Ok(Some(log.view())),
            Some(Slot::Closed(closed)) => Err(closed.reason.clone()),
            None => Ok(None),
        }
    }

    /// Like [`Self::view`], but a log that could not be opened is tried again, and one that is open
    /// must still have its lines.
    fn probe(&mut self, topic: &str) -> Result<Option<View>, String> {
        if self.stop.borrow().is_none()
            && let Some((topic, Slot::Closed(_))) = self.logs.get_key_value(topic)
        {
            let topic = Arc::clone(topic);
            let log = self.reopen(&topic)?;
            tracing::info!(topic = &*topic, "a bus log could be opened again");
            self.logs.insert(topic, Slot::Open(log));
        }
        if let Some(Slot::Open(log)) = self.logs.get(topic) {
            log.check_length()?;
        }
        self.view(topic)
    }

    /// One batch: written, synced, answered in order.
    fn publish(&mut self, batch: &[&Message]) -> Vec<Published> {
        let mut answers: Vec<Option<Published>> = Vec::new();
        answers.resize_with(batch.len(), || None);
        let mut parts = self.sort(batch, &mut answers);
        for part in &mut parts {
            part.short = part.log.write(&part.lines).err();
        }
        sync(&mut parts);
        for part in parts {
            self.settle(part, &mut answers);
        }
        answers.into_iter().map(|answer| answer.expect("every message has an answer")).collect()
    }

    /// Sorts messages by topic as lines, and answers those that cannot be written.
    fn sort(&mut self, batch: &[&Message], answers: &mut [Option<Published>]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut refused: HashMap<Arc<str>, String> = HashMap::new();
        for (place, message) in batch.iter().enumerate() {
            let placed = self.check(message).and_then(|()| {
                if let Some(reason) = refused.get(&message.topic) {
                    return Err(reason.clone());
                }
                let known = parts.iter().position(|part| part.topic == message.topic);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let part =
                            self.part(&message.topic, parts.len()).inspect_err(|reason| {
                                refused.insert(message.topic.clone(), reason.clone());
                            })?;
                        parts.push(part);
                        parts.len() - 1
                    }
                };
                parts[index].add(place, message)
            });
            if let Err(reason) = placed {
                answers[place] = Some(Published::NotWritten { reason });
            }
        }
        parts
    }

    fn check(&self, message: &Message) -> Result<(), String> {
        if let Some(reason) = &*self.stop.borrow() {
            return Err(format!("{reason}; nothing of this message was written"));
        }
        name::check_topic(&message.topic)
            .map_err(|reason| format!("{:?} cannot be a topic: {reason}", message.topic))?;
        name::check_partition_key(&message.partition_key)?;
        name::check_dedupe_key(&message.dedupe_key)?;
        let (bytes, bytes_max) = (message.payload.len(), self.options.message_bytes_max);
        if bytes > bytes_max.min(super::MESSAGE_BYTES_CEILING) {
            return Err(format!("the payload has {bytes} bytes, at most {bytes_max} are allowed"));
        }
        Ok(())
    }

    /// Takes the log of a topic for this batch, opening it if it is not; `taken` are already.
    fn part(&mut self, topic: &Arc<str>, taken: usize) -> Result<Part, String> {
        let log = match self.logs.remove(topic) {
            Some(Slot::Open(log)) => log,
            None if self.logs.len() + taken >= self.options.topics_max => {
                return Err(format!(
                    "the bus has {} topics and may not have more",
                    self.options.topics_max
                ));
            }
            Some(Slot::Closed(closed)) => {
                self.logs.insert(topic.clone(), Slot::Closed(closed));
                self.reopen(topic)?
            }
            None => self.reopen(topic)?,
        };
        let (topic, lines, places) = (topic.clone(), Lines::default(), Vec::new());
        Ok(Part { topic, log, lines, places, short: None, synced: None })
    }

    /// Opens a log and counts its lines anew. If it fails, nothing of a message was written yet. A
    /// damaged log whose file is as it was is not read again.
    fn reopen(&mut self, topic: &Arc<str>) -> Result<Log, String> {
        let root = &self.options.root;
        if let Some(Slot::Closed(Closed { reason, seen: Some(seen) })) = self.logs.get(topic)
            && *seen == file_state(root, topic)
        {
            return Err(reason.clone());
        }
        let acknowledged = self.acknowledged.get(topic).copied().unwrap_or(0);
        match Log::open(root, topic, &self.how, acknowledged) {
            Ok(log) => {
                self.logs.remove(topic);
                Ok(log)
            }
            Err(error) => {
                let closed = Closed::new(root, topic, &error);
                let reason = closed.reason.clone();
                self.logs.insert(topic.clone(), Slot::Closed(closed));
                Err(reason)
            }
        }
    }

    /// Answers the messages of one topic and leaves its log as it can be relied on.
    fn settle(&mut self, mut part: Part, answers: &mut [Option<Published>]) {
        let whole = part.whole();
        let first = part.log.index.next;
        for (row, place) in part.places.iter().enumerate() {
            answers[*place] = Some(part.answer(row, whole, first));
        }
        if let Some(Err(error)) = &part.synced {
            let reason = format!(
                "a sync of bus topic {} failed ({error}); only a new start can tell what is there",
                part.topic
            );
            tracing::error!(reason, messages = part.places.len(), "the bus stops");
            let closed = Closed { reason: reason.clone(), seen: None };
            self.logs.insert(part.topic, Slot::Closed(closed));
            self.stop.send_replace(Some(reason));
            return;
        }
        let log = match part.short {
            None => {
                part.log.commit(&part.lines, whole);
                Ok(part.log)
            }
            Some(short) => {
                let error = &short.error;
                tracing::error!(topic = &*part.topic, %error, written = short.written, of = part.lines.bytes.len(), "a bus log could not be written to the end; it is opened again");
                self.acknowledged.insert(part.topic.clone(), first + whole as u64);
                drop(part.log);
                self.reopen(&part.topic)
            }
        };
        // A log that does not open was noted as closed.
        if let Ok(log) = log {
            self.logs.insert(part.topic, Slot::Open(log));
        }
    }
}

impl Part {
    fn add(&mut self, place: usize, message: &Message) -> Result<(), String> {
        line::encode(message, &mut self.lines.bytes)
            .map_err(|error| format!("the payload is not json: {error}"))?;
        self.lines.ends.push((self.lines.bytes.len(), message.at));
        self.places.push(place);
        Ok(())
    }

    /// Where nothing was taken to its end there is nothing to sync.
    fn sync(&mut self) {
        self.synced = Some(if self.whole() > 0 { self.log.sync() } else { Ok(()) });
    }

    /// How many lines were taken to their end.
    fn whole(&self) -> usize {
        let written = self.short.as_ref().map_or(self.lines.bytes.len(), |short| short.written);
        self.lines.whole_within(written)
    }

    /// What became of the line `row`, when the first `whole` were taken and the log had `first`.
    fn answer(&self, row: usize, whole: usize, first: u64) -> Published {
        if row < whole {
            return match &self.synced {
                Some(Ok(())) => Published::Committed(Reference {
                    topic: self.topic.to_string(),
                    partition: PARTITION,
                    offset: (first + row as u64).to_string(),
                    offset_kind: OffsetKind::FileLine,
                    published_at: Some(self.lines.ends[row].1),
                }),
                Some(Err(error)) => Published::Unknown {
                    reason: format!("it was written, but the sync failed: {error}"),
                },
                None => Published::Unknown { reason: "it was written and not synced".to_owned() },
            };
        }
        let short = self.short.as_ref().expect("a line that was not taken has a reason");
        let start = row.checked_sub(1).map_or(0, |before| self.lines.ends[before].0);
        if short.is_clean() && start >= short.written {
            let reason = format!("nothing of it was written: {}", short.error);
            return Published::NotWritten { reason };
        }
        Published::Unknown { reason: format!("it may be written in part: {}", short.error) }
    }
}

/// Cuts messages into batches of at most about [`BATCH_BYTES_MAX`].
fn batches<'a, 'm>(messages: &'a [&'m Message]) -> impl Iterator<Item = &'a [&'m Message]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |message: &&&Message| {
            let fits = bytes < BATCH_BYTES_MAX;
            // Every byte of a key may be escaped.
            bytes += message.payload.len() + 6 * message.partition_key.len() + 256;
            fits
        };
        let (batch, later) = rest.split_at(rest.iter().take_while(fits).count());
        rest = later;
        (!batch.is_empty()).then_some(batch)
    })
}

/// One sync for each log, at the same time: on one disk they share the work.
fn sync(parts: &mut [Part]) {
    if parts.len() > 1 {
        thread::scope(|scope| {
            for part in parts.iter_mut() {
                // A thread that does not start leaves its sync to this one.
                let started = thread::Builder::new().spawn_scoped(scope, || part.sync());
                drop(started);
            }
        });
    }
    for part in parts.iter_mut().filter(|part| part.synced.is_none()) {
        part.sync();
    }
}

/// An error and what caused it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
