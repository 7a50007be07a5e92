//! Position of an event on the bus: the evidence of every admission.

use admit_core::Millis;
use admit_core::json::{Object, Value};

use super::time;

/// Unit of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireOffsetKind {
    /// Lines of a file, from 0.
    FileLine,
    /// Kinesis sequence number.
    KinesisSequence,
    /// Kafka offset.
    KafkaOffset,
    /// NATS JetStream stream sequence.
    NatsSequence,
}

impl WireOffsetKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::FileLine, Self::KinesisSequence, Self::KafkaOffset, Self::NatsSequence];

    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileLine => "file_line",
            Self::KinesisSequence => "kinesis_sequence",
            Self::KafkaOffset => "kafka_offset",
            Self::NatsSequence => "nats_sequence",
        }
    }

    /// Parses an offset kind.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Coordinates of a committed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EbRef {
    /// Logical topic, independent of the name of the stream behind it.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Offset as text: some exceed any integer type.
    pub offset: String,
    /// Unit of the offset.
    pub offset_kind: WireOffsetKind,
    /// Commit time, if the bus reports it.
    pub published_at: Option<Millis>,
}

impl EbRef {
    /// JSON form used in receipts, rows and evidence.
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

    /// Parses the output of [`to_object`](Self::to_object) and older rows: there the offset may be
    /// a number, and a missing kind means a line of a file.
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
            None | Some(Value::Null) => WireOffsetKind::FileLine,
            Some(kind) => WireOffsetKind::parse(kind.as_str()?)?,
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
