//! The bus port, in our words.
//!
//! Invariant: an answer never claims more than is known. [`Published::Committed`] survives a crash
//! of everything; after [`Published::NotWritten`] the message can never turn up; all else is
//! [`Published::Unknown`].

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Millis;
use bytes::Bytes;

/// One boxed future per batch: it costs nothing that matters and keeps the seams plain.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where admitted events go.
pub trait Bus: Send + Sync {
    /// Publishes a batch. Each message gets its own answer, in order; one bad message fails alone.
    ///
    /// Messages of one call, and of calls made one after the other, are committed in that order per
    /// partition key. Dropping the future abandons the attempt: it may land all the same.
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>>;

    /// Looks for messages by their dedupe key among what was published in a time range. Each gets
    /// its own answer, in order. It changes nothing, and never guesses: what it cannot tell it says.
    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>>;

    /// Committed messages of one partition in order, at most `rows_max`, from the offset `from` on
    /// (that one included); an empty text is the beginning. A topic nobody has published to is
    /// empty.
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>>;

    /// Whether a message to these topics could be published now, from a real probe.
    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth>;

    /// What its offsets are.
    fn offset_kind(&self) -> OffsetKind;

    /// How long after it was abandoned an attempt may still land.
    fn delivery_timeout(&self) -> Duration;

    /// Resolves with the reason when the process must stop: what it believes about the bus can no
    /// longer be trusted, and only a new start can tell what is there. Most buses are never so sure
    /// of anything that this could happen.
    fn must_stop(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The logical topic; see [`crate::name`] for what may be one.
    pub topic: Arc<str>,
    /// Messages with the same one keep their order. 1 to 256 bytes.
    pub partition_key: String,
    /// What it can be found by again. Usually 64 hex digits; see [`crate::name`].
    pub dedupe_key: String,
    /// The envelope, as it came.
    pub payload: Bytes,
    /// The time of publishing, as the caller's clock has it.
    pub at: Millis,
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is durably on the bus, there.
    Committed(Reference),
    /// It is not on the bus and never will be: that is proven.
    NotWritten {
        /// What happened; for evidence and logs.
        reason: String,
    },
    /// It may or may not be on the bus, or get there later.
    Unknown {
        /// What happened; for evidence and logs.
        reason: String,
    },
}

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The logical topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset in that partition, 1 to 128 characters. How two of them compare depends on the
    /// kind.
    pub offset: String,
    /// What kind of offset it is.
    pub offset_kind: OffsetKind,
    /// When it was published, where the bus says so.
    pub published_at: Option<Millis>,
}

/// What kind of offset a [`Reference`] holds.
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
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::FileLine, Self::KinesisSequence, Self::KafkaOffset, Self::NatsSequence];

    /// The word for it in receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::FileLine => "file_line",
            Self::KinesisSequence => "kinesis_sequence",
            Self::KafkaOffset => "kafka_offset",
            Self::NatsSequence => "nats_sequence",
        }
    }

    /// The kind a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for OffsetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A message that somebody looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The logical topic it was meant for.
    pub topic: String,
    /// Its dedupe key.
    pub dedupe_key: String,
    /// Its partition key, which tells where to look.
    pub partition_key: String,
    /// It was published at this time or later, by the clock that stamped [`Message::at`].
    pub from: Millis,
    /// It was published at this time or earlier.
    pub to: Millis,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There it is; in bus order if it is there more than once. Never empty.
    At(Vec<Reference>),
    /// The whole range was searched and it is not there.
    Absent,
    /// The range could not be searched to the end.
    CannotTell {
        /// Why not.
        reason: String,
    },
}

/// A message as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is.
    pub reference: Reference,
    /// Its partition key.
    pub partition_key: String,
    /// Its dedupe key; what others wrote may have none.
    pub dedupe_key: Option<String>,
    /// The envelope.
    pub payload: Bytes,
}

/// Whether the bus can be published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusHealth {
    /// Yes.
    Up,
    /// The probe could not tell.
    Unknown {
        /// Why not.
        reason: String,
    },
    /// No.
    Down {
        /// Why not.
        reason: String,
    },
}

/// Why the bus could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Not a topic that could exist.
    #[error("{topic:?} cannot be a topic: {reason}")]
    NotATopic {
        /// The text.
        topic: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// This bus has no such partition.
    #[error("topic {topic} has no partition {partition}")]
    NoSuchPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
    },
    /// Not an offset of this bus.
    #[error("{offset:?} is not an offset of this bus ({kind})")]
    NotAnOffset {
        /// The text.
        offset: String,
        /// The kind of offset this bus has.
        kind: OffsetKind,
    },
    /// The bus does not answer, or has stopped.
    #[error("the bus could not be read: {reason}")]
    Unavailable {
        /// What it was doing.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// What is stored there is not what a bus stores.
    #[error("{place} is damaged: {reason}")]
    Damaged {
        /// Where.
        place: String,
        /// What is wrong.
        reason: String,
    },
}
