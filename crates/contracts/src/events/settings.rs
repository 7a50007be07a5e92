//! Settings of a stream.

use admit_core::json::Form;
use serde::{Deserialize, Serialize};

use super::identity::FieldPath;
use super::webhooks::Webhooks;

/// Longest name of a stream, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Identity of a plain event. A CloudEvent is always identified by `source` and `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventIdentity {
    /// The `Idempotency-Key` header, or `webhook-id` where webhook secrets are set.
    IdempotencyKey,
    /// Values of these fields, all of which are required.
    Fields(Vec<FieldPath>),
    /// Canonical body: equal content is the same event.
    Body,
}

/// Canonical form of a JSON body that its digest covers.
///
/// `utf8` is the default because it accepts every JSON text this gate can read: `jcs` must refuse
/// repeated keys and integers beyond 2^53, such as the 64-bit ids that many senders use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Canonical {
    /// Keys sorted by code point, integers exact, text unchanged.
    #[default]
    Utf8,
    /// Like `utf8`, with everything outside ASCII escaped.
    Ascii,
    /// RFC 8785.
    Jcs,
}

impl Canonical {
    pub(super) const fn form(self) -> Form {
        match self {
            Self::Utf8 => Form::Utf8,
            Self::Ascii => Form::Ascii,
            Self::Jcs => Form::Jcs,
        }
    }
}

/// Accepted content types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// JSON, including any `+json` type.
    #[default]
    Json,
    /// Any type; a body not declared as JSON is stored and compared byte by byte.
    Any,
}

/// Settings of one stream.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name; see [`is_stream_name`].
    pub name: String,
    /// Identity of plain events.
    pub identity: EventIdentity,
    /// Canonical form for digests.
    pub canonical: Canonical,
    /// Accepted content types.
    pub accept: Accept,
    /// JSON Schemas as `(version, text)`. The version `*` covers events without a version, or with
    /// one that is not listed. Without schemas, nothing is checked.
    pub schemas: Vec<(String, String)>,
    /// Field with the schema version of a plain event. A CloudEvent has it in `dataschema`.
    pub version_field: Option<FieldPath>,
    /// Field with the time of a plain event. A CloudEvent has it in `time`.
    pub time_field: Option<FieldPath>,
    /// Signature verification; `None` accepts unsigned events.
    pub webhooks: Option<Webhooks>,
    /// Maximum nesting depth of a body; deeper ones are refused with `invalid_json`.
    pub json_depth_max: usize,
    /// Maximum number of events per request; larger requests are refused with `body_too_large` as a
    /// whole.
    pub events_per_request_max: usize,
    /// Largest event of a request, in bytes; larger ones are refused with `body_too_large`.
    pub event_bytes_max: usize,
}

impl Settings {
    /// Default settings for a stream with this name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            identity: EventIdentity::IdempotencyKey,
            canonical: Canonical::default(),
            accept: Accept::default(),
            schemas: Vec::new(),
            version_field: None,
            time_field: None,
            webhooks: None,
            json_depth_max: 128,
            events_per_request_max: 1_000,
            event_bytes_max: 1024 * 1024,
        }
    }
}

/// Returns whether `text` is a valid stream name: it is part of a path and of the door's name in
/// the ledger.
pub fn is_stream_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_plain = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts_plain && text.len() <= NAME_CHARS_MAX && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_name_is_valid_in_a_path() {
        for good in ["default", "orders", "orders.v2", "a_b-c", "0"] {
            assert!(is_stream_name(good), "{good}");
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", ".", "..", "-a", "a/b", "a b", "a?b", "é", "a%20b", &long] {
            assert!(!is_stream_name(bad), "{bad}");
        }
    }
}
