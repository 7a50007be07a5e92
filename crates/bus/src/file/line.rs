//! One line of a log: a message as JSON with the envelope embedded byte for byte.
//!
//! ```text
//! {"dedupe_key":"9b92…","partition_key":"fe67…","published_at_utc":"2026-02-12T08:56:40.123000+00:00","payload":{…},"crc32":"e06d21a7"}
//! ```
//!
//! Payload and checksum come last, so that a search reads only the beginning of a line and parses
//! no envelope. The checksum (CRC-32, IEEE) covers every byte of the line before its own comma and
//! has a fixed length; it is verified on every line that ends this way. Lines of earlier versions
//! end with the payload, and lines of other programs may have any member order and no dedupe key;
//! both are read without a checksum.

use std::borrow::Cow;

use admit_core::Millis;
use admit_core::json::{self, DEPTH_CEILING, Limits, Value};
use bytes::Bytes;

use crate::port::Message;

const DEDUPE_KEY: &str = "{\"dedupe_key\":\"";
const PARTITION_KEY: &str = "\",\"partition_key\":";
const PUBLISHED_AT: &str = ",\"published_at_utc\":\"";
const PAYLOAD: &str = "\",\"payload\":";

const CHECKSUM: &str = ",\"crc32\":\"";
const END: &str = "\"}";
/// Bytes of a checksum in hex.
const CHECKSUM_DIGITS: usize = 8;

/// A line nests one level deeper than its payload, and both must be readable.
const PAYLOAD_DEPTH_MAX: usize = DEPTH_CEILING - 1;

/// Appends a message as a line, newline included.
///
/// The bytes of the payload are unchanged, except that line breaks between its tokens become
/// spaces.
///
/// # Errors
/// When the payload is not JSON; nothing is appended.
pub(super) fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), json::JsonError> {
    let limits = Limits { depth_max: PAYLOAD_DEPTH_MAX, bytes_max: usize::MAX };
    json::parse(&message.payload, &limits)?;
    let start = out.len();
    out.extend_from_slice(DEDUPE_KEY.as_bytes());
    out.extend_from_slice(message.dedupe_key.as_bytes());
    out.extend_from_slice(PARTITION_KEY.as_bytes());
    json::write(&Value::from(&message.partition_key), out);
    out.extend_from_slice(PUBLISHED_AT.as_bytes());
    out.extend_from_slice(to_wire(message.at).as_bytes());
    out.extend_from_slice(PAYLOAD.as_bytes());
    let payload = message.payload.iter().copied();
    out.extend(payload.map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    let end = end_with_checksum(&out[start..]);
    out.extend_from_slice(end.as_bytes());
    Ok(())
}

/// The end of a line: the checksum of what precedes it, the last brace and the newline.
pub(super) fn end_with_checksum(body: &[u8]) -> String {
    format!("{CHECKSUM}{:08x}{END}\n", crc32fast::hash(body))
}

/// Time in the format that readers of the contract expect: microseconds and an offset.
fn to_wire(at: Millis) -> String {
    let mut text = at.to_rfc3339_millis();
    text.truncate(text.len() - 1);
    text + "000+00:00"
}

/// The members of a line that a search needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineHeader<'a> {
    pub(super) dedupe_key: Option<Cow<'a, str>>,
    /// `None` when the line has no time.
    pub(super) at: Option<Millis>,
}

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine<'a> {
    pub(super) header: LineHeader<'a>,
    pub(super) partition_key: Cow<'a, str>,
    pub(super) payload: Bytes,
}

/// Error of an invalid line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("not JSON: {0}")]
    NotJson(#[from] json::JsonError),
    #[error("not an object with partition_key and payload")]
    OtherShape,
    #[error("checksum mismatch: computed {found:08x}, recorded {written:08x}")]
    Checksum { written: u32, found: u32 },
}

/// Verifies the checksum of a line that has one. Returns the line without its last member and
/// brace.
pub(super) fn verify_checksum(line: &[u8]) -> Result<Option<&[u8]>, LineError> {
    let parts = || {
        let rest = line.strip_suffix(END.as_bytes())?;
        let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(CHECKSUM_DIGITS)?)?;
        let body = rest.strip_suffix(CHECKSUM.as_bytes())?;
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
        let written = u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        Some((body, written))
    };
    let Some((body, written)) = parts() else { return Ok(None) };
    let found = crc32fast::hash(body);
    if found == written { Ok(Some(body)) } else { Err(LineError::Checksum { written, found }) }
}

/// Verifies a line, given without its newline: by its checksum, or by parsing it if it has none.
pub(super) fn verify(line: &[u8]) -> Result<(), LineError> {
    match verify_checksum(line)? {
        Some(_) => Ok(()),
        None => parse(line).map(drop),
    }
}

/// Parses the header of a line, given without its newline.
pub(super) fn parse_header(line: &[u8]) -> Result<LineHeader<'_>, LineError> {
    match split(verify_checksum(line)?.or_else(|| line.strip_suffix(b"}"))) {
        Some(parts) => {
            Ok(LineHeader { dedupe_key: Some(parts.dedupe_key.into()), at: Some(parts.at) })
        }
        None => Ok(parse(line)?.header),
    }
}

/// Parses a line, given without its newline.
pub(super) fn parse(line: &[u8]) -> Result<LogLine<'_>, LineError> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    if let Some(parts) = split(verify_checksum(line)?.or_else(|| line.strip_suffix(b"}")))
        && let Ok(Value::String(partition_key)) = json::parse(parts.partition_key, &limits)
        && json::parse(parts.payload, &limits).is_ok()
    {
        return Ok(LogLine {
            header: LineHeader { dedupe_key: Some(parts.dedupe_key.into()), at: Some(parts.at) },
            partition_key,
            payload: Bytes::copy_from_slice(parts.payload),
        });
    }
    let value = json::parse(line, &limits)?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let (Some(partition_key), Some(payload)) = (text("partition_key"), value.get("payload")) else {
        return Err(LineError::OtherShape);
    };
    let mut bytes = Vec::new();
    json::write(payload, &mut bytes);
    Ok(LogLine {
        header: LineHeader {
            dedupe_key: text("dedupe_key").map(|key| key.to_owned().into()),
            at: text("published_at_utc").and_then(Millis::parse_rfc3339),
        },
        partition_key: partition_key.to_owned().into(),
        payload: bytes.into(),
    })
}

/// Raw parts of a line in our layout; `partition_key` still quoted.
struct LineParts<'a> {
    dedupe_key: &'a str,
    partition_key: &'a [u8],
    at: Millis,
    payload: &'a [u8],
}

/// `body` is a line without its checksum and its last brace.
fn split(body: Option<&[u8]>) -> Option<LineParts<'_>> {
    let rest = body?.strip_prefix(DEDUPE_KEY.as_bytes())?;
    let (dedupe_key, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'"')?);
    let rest = rest.strip_prefix(PARTITION_KEY.as_bytes())?;
    let (partition_key, rest) = rest.split_at(end_of_string(rest)?);
    let rest = rest.strip_prefix(PUBLISHED_AT.as_bytes())?;
    let (at, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'"')?);
    let payload = rest.strip_prefix(PAYLOAD.as_bytes())?;
    // Our keys never contain escapes.
    let dedupe_key = str::from_utf8(dedupe_key).ok().filter(|key| !key.contains('\\'))?;
    let at = Millis::parse_rfc3339(str::from_utf8(at).ok()?)?;
    Some(LineParts { dedupe_key, partition_key, at, payload })
}

/// Length of the JSON string at the beginning of `text`, quotes included.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(partition_key: &str, payload: &'static str) -> Message {
        Message {
            topic: "t".into(),
            partition_key: partition_key.to_owned(),
            dedupe_key: "9b92".to_owned(),
            payload: payload.into(),
            at: Millis(1_771_524_842_123),
        }
    }

    fn line(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        encode(message, &mut out).expect("json");
        assert_eq!(out.pop(), Some(b'\n'));
        assert!(!out.contains(&b'\n'), "a message is one line");
        out
    }

    #[test]
    fn a_line_has_the_documented_layout() {
        let line = line(&message("fe67", r#"{"a": 1.0,"b":[ ]}"#));
        let expected = r#"{"dedupe_key":"9b92","partition_key":"fe67","published_at_utc":"2026-02-19T18:14:02.123000+00:00","payload":{"a": 1.0,"b":[ ]},"crc32":"3165c7e9"}"#;
        assert_eq!(String::from_utf8(line).expect("text"), expected);
    }

    #[test]
    fn written_bytes_are_read_back_unchanged() {
        for key in ["k", "a\"b", "a\\", "ä\u{1}", "\",\"published_at_utc\":\""] {
            for payload in [r#"{"a":"}\n","b":1e3}"#, "[]", r#" {"x":"\u00e4"} "#, "1.50"] {
                let message = message(key, payload);
                let line = line(&message);
                let read = parse(&line).expect("a line");
                assert_eq!(read.partition_key, key);
                assert_eq!(read.payload, message.payload);
                assert_eq!(read.header, parse_header(&line).expect("a line"));
                assert_eq!(read.header.dedupe_key.as_deref(), Some("9b92"));
                assert_eq!(read.header.at, Some(message.at));
            }
        }
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let line = line(&message("k", "{\r\n  \"a\": 1\n}"));
        assert_eq!(&parse(&line).expect("a line").payload[..], b"{    \"a\": 1 }");
    }

    #[test]
    fn a_line_of_another_program_is_read() {
        let line = br#"{"partition_key": "p", "payload": {"b": 1.0, "a": "x"}, "published_at_utc": "2026-02-19T18:14:02.123456+00:00"}"#;
        let read = parse(line).expect("a line");
        assert_eq!((&*read.partition_key, read.header.dedupe_key.as_deref()), ("p", None));
        assert_eq!(&read.payload[..], br#"{"b":1.0,"a":"x"}"#);
        assert_eq!(read.header.at, Some(Millis(1_771_524_842_123)));
        let bare = parse(br#"{"partition_key":"p","payload":null}"#).expect("a line");
        assert_eq!(bare.header, LineHeader { dedupe_key: None, at: None });
    }

    #[test]
    fn extra_members_after_the_payload_are_not_misread() {
        let mut line = line(&message("k", "{\"a\":1}"));
        line.pop();
        line.extend_from_slice(b",\"more\":2}");
        assert_eq!(&parse(&line).expect("a line").payload[..], b"{\"a\":1}");
    }

    #[test]
    fn one_changed_bit_anywhere_is_noticed_or_harmless() {
        let line = line(&message("k", r#"{"a":"text","n":17}"#));
        let read = parse(&line).expect("a line");
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut damaged = line.clone();
                damaged[at] ^= 1 << bit;
                // Only the member name of the checksum can change unnoticed, and it is not part of
                // the message.
                if let Ok(other) = parse(&damaged) {
                    assert_eq!(other, read, "bit {bit} of byte {at}");
                }
                assert_eq!(verify(&damaged).is_ok(), parse(&damaged).is_ok());
            }
        }
    }

    #[test]
    fn lines_of_earlier_versions_are_read_for_any_payload() {
        for payload in [r#"{"crc32":"00000000"}"#, r#""x\",\"crc32\":\"00000000""#, "[]"] {
            let line = format!(
                r#"{{"dedupe_key":"9b92","partition_key":"k","published_at_utc":"2026-02-19T18:14:02.123000+00:00","payload":{payload}}}"#
            );
            let read = parse(line.as_bytes()).expect("a line");
            assert_eq!(&read.payload[..], payload.as_bytes());
            assert_eq!(parse_header(line.as_bytes()).expect("a line"), read.header);
        }
    }

    #[test]
    fn invalid_lines_are_rejected() {
        let torn = line(&message("k", "{\"a\":1}"));
        for at in 0..torn.len() {
            assert!(parse(&torn[..at]).is_err(), "cut at {at}");
        }
        for bytes in [&b""[..], b"{}", b"[]", b"\0\0\0", br#"{"partition_key":"p"}"#] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        let mut out = Vec::new();
        assert!(encode(&message("k", "not json"), &mut out).is_err());
        assert!(out.is_empty(), "nothing half written");
    }
}
