//! The bus port: publish, find, read, health.
//!
//! Invariant: a result never claims more than is known. [`PublishOutcome::Committed`] survives a
//! crash of everything; after [`PublishOutcome::NotWritten`] the message can never turn up;
//! anything else is [`PublishOutcome::Unknown`].

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Millis;
use bytes::Bytes;

/// Boxed future, one per batch: negligible cost, and the trait stays object safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Destination of admitted events.
pub trait Bus: Send + Sync {
    /// Publishes a batch. Returns one outcome per message, in order; one bad message fails alone.
    ///
    /// Messages of one call, and of consecutive calls, are committed in that order per partition
    /// key. Dropping the future abandons the attempt, but the messages may still land.
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>>;

    /// Finds messages by their dedupe key within a time range. Returns one result per query, in
    /// order. Read-only. Never guesses: where the range could not be searched, the result is
    /// [`SearchResult::Unknown`].
    fn find(&self, queries: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>>;

    /// Committed messages of one partition in order, at most `rows_max`, starting at the offset
    /// `from` (inclusive); an empty `from` is the beginning. A topic that was never published to is
    /// empty.
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>>;

    /// Whether messages to these topics can be published now, from a real probe.
    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth>;

    /// The kind of offset this bus assigns.
    fn offset_kind(&self) -> OffsetKind;

    /// How long an abandoned attempt may still land.
    fn delivery_timeout(&self) -> Duration;

    /// Resolves with a reason when the process must stop because the state of the bus is no longer
    /// known and only a restart can establish it (for example after a failed fsync). Never resolves
    /// on most buses.
    fn must_stop(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The logical topic; see [`crate::name`] for what may be one.
    pub topic: Arc<str>,
    /// Messages with the same partition key keep their order. 1 to 256 bytes.
    pub partition_key: String,
    /// Key to find the message by. Usually 64 hex digits; see [`crate::name`].
    pub dedupe_key: String,
    /// The envelope, byte for byte.
    pub payload: Bytes,
    /// Time of publishing, by the caller's clock.
    pub at: Millis,
}

/// Outcome of publishing one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Durably on the bus, at this reference.
    Committed(Reference),
    /// Proven not to be on the bus, now or later.
    NotWritten {
        /// Cause, for evidence and logs.
        reason: String,
    },
    /// It may be on the bus, or may still get there.
    Unknown {
        /// Cause, for evidence and logs.
        reason: String,
    },
}

/// Location of a message on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The logical topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset in that partition, 1 to 128 characters. Ordering depends on the kind.
    pub offset: String,
    /// Kind of the offset.
    pub offset_kind: OffsetKind,
    /// Time of publishing, where the bus reports it.
    pub published_at: Option<Millis>,
}

impl Reference {
    /// Number of messages that the topic holds up to this one, if its offsets are counted from 0.
    pub fn messages_up_to(&self) -> Option<u64> {
        let is_counted = self.offset_kind == OffsetKind::FileLine && self.partition == 0;
        let messages = self.offset.parse::<u64>().ok()?.checked_add(1)?;
        is_counted.then_some(messages)
    }
}

/// Kind of offset in a [`Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffsetKind {
    /// The line of a file, from 0.
    FileLine,
    /// A Kinesis sequence number.
    KinesisSequence,
    /// A Kafka offset.
    KafkaOffset,
    /// A JetStream sequence number.
    NatsSequence,
}

impl OffsetKind {
    /// All variants.
    pub const ALL: [Self; 4] =
        [Self::FileLine, Self::KinesisSequence, Self::KafkaOffset, Self::NatsSequence];

    /// Its name in receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::FileLine => "file_line",
            Self::KinesisSequence => "kinesis_sequence",
            Self::KafkaOffset => "kafka_offset",
            Self::NatsSequence => "nats_sequence",
        }
    }

    /// The kind with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for OffsetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Search for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    /// The logical topic it was published to.
    pub topic: String,
    /// Its dedupe key.
    pub dedupe_key: String,
    /// Its partition key, which determines the partition.
    pub partition_key: String,
    /// Earliest time of publishing, by the clock that stamped [`Message::at`].
    pub from: Millis,
    /// Latest time of publishing.
    pub to: Millis,
}

/// Result of one [`SearchQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// Every location of the message, in bus order. Never empty.
    Found(Vec<Reference>),
    /// The whole range was searched and the message is not there.
    Absent,
    /// The range could not be searched to its end.
    Unknown {
        /// The reason.
        reason: String,
    },
}

/// A message read from the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its location.
    pub reference: Reference,
    /// Its partition key.
    pub partition_key: String,
    /// Its dedupe key; messages of other programs may have none.
    pub dedupe_key: Option<String>,
    /// The envelope.
    pub payload: Bytes,
}

/// Result of a health probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusHealth {
    /// Messages can be published.
    Up,
    /// The probe had no result.
    Unknown {
        /// The reason.
        reason: String,
    },
    /// Messages cannot be published.
    Down {
        /// The reason.
        reason: String,
    },
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Invalid topic name.
    #[error("invalid topic {topic:?}: {reason}")]
    NotATopic {
        /// The given text.
        topic: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}")]
    NoSuchPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
    },
    /// Invalid offset for this bus.
    #[error("invalid offset {offset:?}: this bus has offsets of kind {kind}")]
    NotAnOffset {
        /// The given text.
        offset: String,
        /// The kind of offset this bus has.
        kind: OffsetKind,
    },
    /// The bus does not respond, or has stopped.
    #[error("bus unavailable: {reason}")]
    Unavailable {
        /// The failed operation.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Stored data is damaged, or not what was read before.
    #[error("{place} is damaged: {reason}")]
    Damaged {
        /// The place.
        place: String,
        /// The damage.
        reason: String,
    },
}
