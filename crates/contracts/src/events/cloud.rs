//! CloudEvents 1.0, independent of transport mode.
//!
//! Structured and binary mode are two encodings of the same event, so both are parsed into the same
//! form: attributes become text, data becomes a JSON value or bytes. A retry in the other mode is
//! still the same event with the same digest.

use std::borrow::Cow;

use admit_core::json::{Object, Value};
use admit_core::{Code, Millis, Submission};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::media::{self, is_json};

/// Supported version of the specification.
const SPECVERSION: &str = "1.0";

/// Required attributes.
const REQUIRED: [&str; 3] = ["id", "source", "type"];

/// Longest attribute name, in characters. The specification advises 20.
const NAME_CHARS_MAX: usize = 64;

/// Longest attribute value, in bytes.
const VALUE_BYTES_MAX: usize = 4 * 1024;

/// Parsed CloudEvent.
#[derive(Debug)]
pub(super) struct CloudEvent<'a> {
    /// Attributes as text, sorted by name.
    attributes: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(super) data: EventData<'a>,
}

/// Data of an event.
#[derive(Debug)]
pub(super) enum EventData<'a> {
    /// No data.
    None,
    /// JSON value.
    Json(Cow<'a, Value<'a>>),
    /// Any other data.
    Bytes(Cow<'a, [u8]>),
}

/// Parse error: the code and the message of the refusal.
pub(super) type CloudEventError = (Code, String);

fn wrong<T>(message: String) -> Result<T, CloudEventError> {
    Err((Code::InvalidEnvelope, message))
}

impl<'a> CloudEvent<'a> {
    /// Parses an event in structured mode.
    pub(super) fn structured(value: &'a Value<'a>) -> Result<Self, CloudEventError> {
        let Value::Object(members) = value else {
            return wrong("a cloudevent is a json object".to_owned());
        };
        if let Some(name) = members.repeated_key() {
            return wrong(format!("the attribute {} appears twice", truncated(name)));
        }
        let mut attributes = Vec::with_capacity(members.len());
        for (name, value) in members.iter().filter(|(name, _)| !is_data(name)) {
            let text = match value {
                Value::Null => continue,
                Value::String(text) => Cow::Borrowed(text.as_ref()),
                Value::Int(digits) => Cow::Borrowed(digits.as_ref()),
                Value::Bool(true) => Cow::Borrowed("true"),
                Value::Bool(false) => Cow::Borrowed("false"),
                Value::Float(_) | Value::Array(_) | Value::Object(_) => {
                    return wrong(format!(
                        "the attribute {} is a {}, which an attribute cannot be",
                        truncated(name),
                        value.kind()
                    ));
                }
            };
            attributes.push((Cow::Borrowed(name), text));
        }
        let content_type = members.get("datacontenttype").and_then(Value::as_str);
        let data = structured_data(members, content_type)?;
        Self { attributes, data }.validate()
    }

    /// Parses an event in binary mode. `value` is its body if that is JSON.
    pub(super) fn binary(
        submission: &'a Submission,
        value: Option<&'a Value<'a>>,
    ) -> Result<Self, CloudEventError> {
        let mut attributes: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::new();
        for (header, value) in &submission.headers {
            let Some(name) = header.strip_prefix("ce-") else { continue };
            // The content type of the data is that of the body; this header does not override it.
            if name == "datacontenttype" {
                continue;
            }
            if attributes.iter().any(|(known, _)| known == name) {
                return wrong(format!("the header ce-{} appears twice", truncated(name)));
            }
            let Some(text) = decode_header(value) else {
                return wrong(format!("the header ce-{} is not utf-8", truncated(name)));
            };
            attributes.push((Cow::Borrowed(name), text));
        }
        let has_body = !submission.body.is_empty();
        if has_body && let Some(content_type) = submission.header(media::CONTENT_TYPE) {
            attributes.push((Cow::Borrowed("datacontenttype"), Cow::Borrowed(content_type)));
        }
        let data = match value {
            Some(value) => EventData::Json(Cow::Borrowed(value)),
            None if has_body => EventData::Bytes(Cow::Borrowed(&submission.body)),
            None => EventData::None,
        };
        Self { attributes, data }.validate()
    }

    /// Rebuilds a stored binary-mode event from its attributes; `value` is its body if that is
    /// JSON.
    pub(super) fn from_stored(
        attributes: &'a Object<'a>,
        body: &'a [u8],
        value: Option<&'a Value<'a>>,
    ) -> Option<Self> {
        let text = |(name, value): (&'a str, &'a Value<'a>)| {
            Some((Cow::Borrowed(name), Cow::Borrowed(value.as_str()?)))
        };
        let attributes = attributes.iter().map(text).collect::<Option<_>>()?;
        let data = match value {
            Some(value) => EventData::Json(Cow::Borrowed(value)),
            None if body.is_empty() => EventData::None,
            None => EventData::Bytes(Cow::Borrowed(body)),
        };
        Self { attributes, data }.validate().ok()
    }

    fn validate(mut self) -> Result<Self, CloudEventError> {
        self.attributes.sort_unstable();
        match self.get("specversion") {
            Some(SPECVERSION) => {}
            Some(other) => {
                let message = format!("specversion {} is not {SPECVERSION}", truncated(other));
                return Err((Code::SchemaVersionUnsupported, message));
            }
            None => return wrong("the attribute specversion is missing".to_owned()),
        }
        for name in REQUIRED {
            if self.get(name).is_none() {
                return wrong(format!("the attribute {name} is missing"));
            }
        }
        for (name, value) in &self.attributes {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(is_plain) {
                return wrong(format!(
                    "the attribute {} has a name with characters other than lower-case letters and digits",
                    truncated(name)
                ));
            }
            if value.is_empty() {
                return wrong(format!("the attribute {name} is empty"));
            }
            if value.len() > VALUE_BYTES_MAX || value.chars().any(char::is_control) {
                return wrong(format!(
                    "the attribute {name} is too long or has a control character"
                ));
            }
        }
        if let Some(time) = self.get("time")
            && Millis::parse_rfc3339(time).is_none()
        {
            return wrong("the attribute time is not an RFC 3339 time".to_owned());
        }
        if self.get("source").is_some_and(|source| source.contains(char::is_whitespace)) {
            return wrong("the attribute source is not a URI reference".to_owned());
        }
        Ok(self)
    }

    /// Returns an attribute.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }

    /// Time of the event, if set.
    pub(super) fn time(&self) -> Option<Millis> {
        self.get("time").and_then(Millis::parse_rfc3339)
    }

    /// Attributes as an object.
    pub(super) fn attributes(&self) -> Object<'static> {
        let owned = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| {
            (name.clone().into_owned(), Value::from(value.clone().into_owned()))
        };
        self.attributes.iter().map(owned).collect()
    }

    /// Content that must not differ under one key: all attributes and the data. Data without a
    /// content type is JSON, so an explicit JSON content type makes no difference.
    pub(super) fn content(&self) -> Value<'_> {
        let mut attributes: Object<'_> = self
            .attributes
            .iter()
            .map(|(name, value)| (name.as_ref(), Value::from(value.as_ref())))
            .collect();
        let data = match &self.data {
            EventData::None => None,
            EventData::Json(value) => {
                if self.get("datacontenttype").is_none() {
                    attributes.push("datacontenttype", "application/json");
                }
                Some(("data", value.clone().into_owned()))
            }
            EventData::Bytes(bytes) => Some(("data_base64", BASE64_STANDARD.encode(bytes).into())),
        };
        let mut content = Object::from_iter([("attributes", attributes.into())]);
        content.extend(data);
        content.into()
    }
}

fn is_data(name: &str) -> bool {
    matches!(name, "data" | "data_base64")
}

fn structured_data<'a>(
    members: &'a Object<'a>,
    content_type: Option<&str>,
) -> Result<EventData<'a>, CloudEventError> {
    let present = |name: &str| members.get(name).filter(|value| !value.is_null());
    match (members.get("data"), present("data_base64")) {
        (Some(data), Some(_)) if !data.is_null() => {
            wrong("an event has data or data_base64, not both".to_owned())
        }
        (_, Some(encoded)) => {
            let bytes = encoded.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
            match bytes {
                Some(bytes) => Ok(EventData::Bytes(Cow::Owned(bytes))),
                None => wrong("data_base64 is not base64".to_owned()),
            }
        }
        (Some(Value::String(text)), None)
            if content_type.is_some_and(|kind| !is_json(&media::essence(kind))) =>
        {
            Ok(EventData::Bytes(Cow::Borrowed(text.as_bytes())))
        }
        (Some(data), None) => Ok(EventData::Json(Cow::Borrowed(data))),
        (None, None) => Ok(EventData::None),
    }
}

/// Decodes a header value as defined by the HTTP binding: optionally quoted, percent-encoded UTF-8.
fn decode_header(value: &str) -> Option<Cow<'_, str>> {
    let value = value.trim_matches([' ', '\t']);
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if !inner.contains(['%', '\\']) {
        return Some(Cow::Borrowed(inner));
    }
    let is_quoted = inner.len() < value.len();
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'\\', [escaped, after @ ..]) if is_quoted => (*escaped, after),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, after),
                _ => (first, &rest[1..]),
            },
            _ => (first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Truncates a text for a message.
fn truncated(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let cut: String = text.chars().take(CHARS_MAX).collect();
    format!("{cut:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_decoded_as_the_http_binding_writes_them() {
        for (value, text) in [
            ("plain", "plain"),
            (" spaced ", "spaced"),
            ("Euro%20%E2%82%AC%20%f0%9f%98%80", "Euro € 😀"),
            ("100%", "100%"),
            ("%zz", "%zz"),
            (r#""quoted \"text\"""#, r#"quoted "text""#),
            (r#""a%20b""#, "a b"),
            (r"C:\temp", r"C:\temp"),
        ] {
            assert_eq!(decode_header(value).as_deref(), Some(text), "{value}");
        }
        assert_eq!(decode_header("%ff"), None);
    }
}
