//! Encoding of a message as a Kinesis record, without changing a byte of the envelope.
//!
//! A record has two fields: data and partition key. The data is the envelope. The partition key is
//! the message's, then [`MARK`], then the dedupe key. So that this does not scatter the messages of
//! one partition key over all shards, the record also has an explicit hash key: the one Kinesis
//! would derive from the message's partition key alone. See docs/decisions/0024.

use admit_core::hash::sha256_hex;
use md5::{Digest as _, Md5};

use crate::name;
use crate::port::Message;

/// Separator between partition key and dedupe key. No dedupe key contains a `|`, so the last
/// separator counts.
pub const MARK: &str = "|dedupe=";

/// Longest partition key of a record, in characters.
const KEY_CHARS_MAX: usize = 256;

/// Keys of a message on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The partition key of the record.
    pub(super) key: String,
    /// The explicit hash key, as a decimal number.
    pub(super) hash_key: String,
}

impl Frame {
    /// Builds the frame of a message; the error is why it cannot be a record.
    pub(super) fn of(message: &Message, bytes_max: usize) -> Result<Self, String> {
        name::check_topic(&message.topic).map_err(str::to_owned)?;
        name::check_partition_key(&message.partition_key).map_err(str::to_owned)?;
        name::check_dedupe_key(&message.dedupe_key).map_err(str::to_owned)?;
        let key = format!("{}{MARK}{}", message.partition_key, message.dedupe_key);
        if key.chars().count() > KEY_CHARS_MAX {
            return Err(format!(
                "partition key and dedupe key have more than {} characters together",
                KEY_CHARS_MAX - MARK.len()
            ));
        }
        let bytes = key.len() + message.payload.len();
        if bytes > bytes_max {
            return Err(format!("it has {bytes} bytes with its keys, the limit is {bytes_max}"));
        }
        Ok(Self { key, hash_key: hash_key(&message.partition_key).to_string() })
    }
}

/// The hash key that Kinesis derives from a partition key: its MD5, as a number.
pub(super) fn hash_key(partition_key: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(partition_key.as_bytes()).into())
}

/// Splits the key of a record into partition key and dedupe key; records of other programs have no
/// dedupe key.
pub(super) fn keys(key: &str) -> (&str, Option<&str>) {
    match key.rsplit_once(MARK) {
        Some((partition_key, dedupe_key)) if name::check_dedupe_key(dedupe_key).is_ok() => {
            (partition_key, Some(dedupe_key))
        }
        _ => (key, None),
    }
}

/// Default stream name of a topic: too long a name is truncated and made unique by a hash.
pub(super) fn stream(prefix: &str, topic: &str) -> String {
    const STREAM_BYTES_MAX: usize = 128;
    let name = format!("{prefix}{topic}");
    if name.len() <= STREAM_BYTES_MAX {
        return name;
    }
    let hash = &sha256_hex(name.as_bytes())[..16];
    format!("{}.{hash}", &name[..STREAM_BYTES_MAX - 17])
}

#[cfg(test)]
mod tests {
    use admit_core::Millis;

    use super::*;

    fn message(partition_key: &str, payload: usize) -> Message {
        Message {
            topic: "fp.bus.traffic.v1".into(),
            partition_key: partition_key.to_owned(),
            dedupe_key: "9b".repeat(32),
            payload: vec![b'x'; payload].into(),
            at: Millis(0),
        }
    }

    #[test]
    fn both_keys_survive_a_round_trip() {
        for key in ["k", "a|b", "a|dedupe=b", "flöw 1", &"k".repeat(184)] {
            let frame = Frame::of(&message(key, 1), 1 << 20).unwrap();
            assert_eq!(keys(&frame.key), (key, Some(&*"9b".repeat(32))));
        }
        for other in ["k", "k|dedupe=", "k|dedupe=not a key", ""] {
            assert_eq!(keys(other), (other, None), "keys of other programs are unchanged");
        }
    }

    #[test]
    fn a_record_goes_to_the_shard_of_its_partition_key() {
        // The MD5 of "k" is 8ce4b16b22b58894aa86c421e8759df3.
        assert_eq!(hash_key("k"), 0x8ce4_b16b_22b5_8894_aa86_c421_e875_9df3);
        let hash_of = |dedupe_key: &str| {
            let message = Message { dedupe_key: dedupe_key.to_owned(), ..message("k", 1) };
            Frame::of(&message, 1 << 20).unwrap().hash_key
        };
        assert_eq!(hash_of("one"), hash_of("other"));
        assert_eq!(hash_of("one"), hash_key("k").to_string());
    }

    #[test]
    fn oversized_messages_are_refused_before_sending() {
        assert!(Frame::of(&message(&"k".repeat(185), 1), 1 << 20).is_err());
        assert!(Frame::of(&message("k", 928), 1001).is_ok());
        assert!(Frame::of(&message("k", 929), 1001).is_err());
        assert!(Frame::of(&message("", 1), 1 << 20).is_err());
    }

    #[test]
    fn long_topics_have_distinct_streams() {
        assert_eq!(stream("prod-", "fp.bus.traffic.v1"), "prod-fp.bus.traffic.v1");
        let (one, other) = ("t".repeat(199) + "a", "t".repeat(199) + "b");
        assert_eq!(stream("", &one).len(), 128);
        assert_ne!(stream("", &one), stream("", &other));
    }
}
