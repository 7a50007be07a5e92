//! Message headers: dedupe key, partition key, time of publishing.

use admit_core::Millis;
use async_nats::HeaderMap;

/// The header by which JetStream deduplicates. It holds the dedupe key.
pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The partition key, with all characters not allowed in a header line as `%XX`.
pub(super) const PARTITION_KEY: &str = "Admit-Partition-Key";
/// Time of publishing by the publisher's clock, in milliseconds.
pub(super) const PUBLISHED_AT: &str = "Admit-Published-At";

/// Builds the headers of a message.
pub(super) fn headers(dedupe_key: &str, partition_key: &str, at: Millis) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(MESSAGE_ID, dedupe_key);
    headers.insert(PARTITION_KEY, escape(partition_key));
    headers.insert(PUBLISHED_AT, at.0.to_string());
    headers
}

pub(super) fn dedupe_key(headers: Option<&HeaderMap>) -> Option<&str> {
    headers?.get(MESSAGE_ID).map(async_nats::HeaderValue::as_str)
}

pub(super) fn partition_key(headers: Option<&HeaderMap>) -> String {
    let key = headers.and_then(|headers| headers.get(PARTITION_KEY));
    key.map(|key| unescape(key.as_str())).unwrap_or_default()
}

pub(super) fn published_at(headers: Option<&HeaderMap>) -> Option<Millis> {
    headers?.get(PUBLISHED_AT)?.as_str().parse().ok().map(Millis)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Decodes `%XX` escapes; invalid escapes of other publishers are kept as they are.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(code) if *byte == b'%' => {
                bytes.push(code);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_partition_key_survives_a_round_trip() {
        for key in ["k", "flöw 1", "a\r\nNats-Rollup: all", " ", "100%", "%41", "%4", "\u{0}"] {
            let headers = headers("d", key, Millis(7));
            let value = headers.get(PARTITION_KEY).unwrap().as_str();
            assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value:?}");
            assert_eq!(partition_key(Some(&headers)), key);
            assert_eq!(dedupe_key(Some(&headers)), Some("d"));
            assert_eq!(published_at(Some(&headers)), Some(Millis(7)));
        }
    }

    #[test]
    fn headers_of_other_publishers_are_read_leniently() {
        assert_eq!(partition_key(None), "");
        assert_eq!(dedupe_key(None), None);
        let mut headers = HeaderMap::new();
        headers.insert(PARTITION_KEY, "%zz%");
        headers.insert(PUBLISHED_AT, "yesterday");
        assert_eq!(partition_key(Some(&headers)), "%zz%");
        assert_eq!(published_at(Some(&headers)), None);
    }
}
