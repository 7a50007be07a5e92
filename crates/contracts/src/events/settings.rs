//! What can be decided about a stream.

use admit_core::json::Form;
use serde::{Deserialize, Serialize};

use super::identity::Field;
use super::webhooks::Webhooks;

/// Longest name of a stream, in characters.
const NAME_CHARS_MAX: usize = 64;

/// What names a plain event. A CloudEvent is named by `source` and `id` whatever stands here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The `Idempotency-Key` header, or `webhook-id` where webhook secrets are set.
    IdempotencyKey,
    /// The values of these fields, all of which must be there.
    Fields(Vec<Field>),
    /// The canonical body: the same content is the same event.
    Body,
}

/// Which spelling of a JSON body its digest is taken over.
///
/// `utf8` is the default because it takes every JSON text this gate can read: `jcs` has to refuse
/// repeated keys and integers beyond 2^53, such as the 64-bit ids that many senders use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Canonical {
    /// Keys sorted by code point, integers exact, text as it is.
    #[default]
    Utf8,
    /// As `utf8`, with everything outside ASCII escaped.
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

/// Which bodies a stream takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// JSON, of any `+json` type.
    #[default]
    Json,
    /// Anything; what does not say that it is JSON is kept and compared byte by byte.
    Any,
}

/// The settings of one stream.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The stream's name; see [`is_stream_name`].
    pub name: String,
    /// What names a plain event.
    pub identity: Identity,
    /// What its digest is taken over.
    pub canonical: Canonical,
    /// Which bodies are taken.
    pub accept: Accept,
    /// JSON Schemas as `(version, text)`. The version `*` is for events that name none, or one that
    /// is not listed. No schemas: nothing is checked.
    pub schemas: Vec<(String, String)>,
    /// Where a plain event says its schema version. A CloudEvent says it in `dataschema`.
    pub version_field: Option<Field>,
    /// Where a plain event says when it happened. A CloudEvent says it in `time`.
    pub time_field: Option<Field>,
    /// Signatures to verify; `None` takes unsigned events.
    pub webhooks: Option<Webhooks>,
    /// Deepest nesting of a body; deeper ones are refused with `invalid_json`.
    pub json_depth_max: usize,
    /// Most events of one request; more are refused with `body_too_large`, all of them.
    pub events_per_request_max: usize,
    /// Largest event of a request, in bytes; larger ones are refused with `body_too_large`.
    pub event_bytes_max: usize,
}

impl Settings {
    /// A stream with this name and the default settings.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            identity: Identity::IdempotencyKey,
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

/// Whether `text` can name a stream: it is part of a path and of the door's name in the ledger.
pub fn is_stream_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_plain = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts_plain && text.len() <= NAME_CHARS_MAX && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_name_can_stand_in_a_path() {
        for good in ["default", "orders", "orders.v2", "a_b-c", "0"] {
            assert!(is_stream_name(good), "{good}");
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", ".", "..", "-a", "a/b", "a b", "a?b", "é", "a%20b", &long] {
            assert!(!is_stream_name(bad), "{bad}");
        }
    }
}
