//! Where on the bus an event is: the evidence of every admission.

use admit_core::Millis;
use admit_core::json::{Object, Value};

use super::time;

/// What an offset counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffsetKind {
    /// Lines of a file, from 0.
    FileLine,
    /// A sequence number of Kinesis.
    KinesisSequence,
    /// An offset of Kafka.
    KafkaOffset,
    /// A stream sequence of NATS JetStream.
    NatsSequence,
}

impl OffsetKind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::FileLine, Self::KinesisSequence, Self::KafkaOffset, Self::NatsSequence];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileLine => "file_line",
            Self::KinesisSequence => "kinesis_sequence",
            Self::KafkaOffset => "kafka_offset",
            Self::NatsSequence => "nats_sequence",
        }
    }

    /// The kind that `text` spells, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The coordinates of a committed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EbRef {
    /// The logical topic, whatever the stream behind it is called.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset, as text: some are larger than any integer.
    pub offset: String,
    /// What the offset counts.
    pub offset_kind: OffsetKind,
    /// When it was committed, where the bus says so.
    pub published_at: Option<Millis>,
}

impl EbRef {
    /// As receipts, rows and evidence carry it.
    pub fn to_object(&self) -> Object<'static> {
        let mut object = Object::from_iter([
            ("topic", Value::from(self.topic.clone())),
            ("partition", self.partition.into()),
            ("offset", self.offset.clone().into()),
            ("offset_kind", self.offset_kind.as_str().into()),
        ]);
        if let Some(at) = self.published_at {
            object.push("published_at_utc", time::utc(at));
        }
        object
    }

    /// Reads what [`to_object`](Self::to_object) wrote, and what older rows hold: an offset that is
    /// a number, or without its kind, which then is a line of a file.
    pub fn read(value: &Value<'_>) -> Option<Self> {
        let offset = match value.get("offset")? {
            Value::String(text) if !text.is_empty() => text.to_string(),
            Value::Int(digits) => digits.to_string(),
            Value::Null
            | Value::Bool(_)
            | Value::Float(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => return None,
        };
        let offset_kind = match value.get("offset_kind") {
            None | Some(Value::Null) => OffsetKind::FileLine,
            Some(kind) => OffsetKind::parse(kind.as_str()?)?,
        };
        Some(Self {
            topic: value.get("topic")?.as_str()?.to_owned(),
            partition: value.get("partition")?.as_u64()?.try_into().ok()?,
            offset,
            offset_kind,
            published_at: value
                .get("published_at_utc")
                .and_then(Value::as_str)
                .and_then(Millis::parse_rfc3339),
        })
    }
}
