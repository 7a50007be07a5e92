//! Audit check: recomputes the digest and the key of an admitted event from its body.
//!
//! The stream's current settings are not used where the stored facts suffice: the transport mode
//! and the identifying header are stored with the event. A digest is compared against each of the
//! few canonical forms, and a modified body matches none of them, so events still verify after a
//! stream has changed its `canonical` setting.

use admit_core::json::{self, DEPTH_CEILING, Form, Limits, Object, Value};
use admit_core::{Digest, Key};

use super::cloud::CloudEvent;
use super::identity::FieldPath;
use super::media;
use super::settings::EventIdentity;

const FORMS: [Form; 3] = [Form::Utf8, Form::Ascii, Form::Jcs];

/// Stored event.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEvent<'a> {
    /// Door.
    pub door: &'a str,
    /// Sender.
    pub principal: &'a str,
    /// Facts of its receipt.
    pub facts: &'a [u8],
    /// Raw body.
    pub body: &'a [u8],
    /// Key.
    pub key: Option<Key>,
    /// Digest of the content.
    pub digest: Digest,
}

/// Result of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether the digest matches.
    pub digest: bool,
    /// Whether the key matches; `None` if the identity setting of the stream is not known.
    pub key: Option<bool>,
}

const NEITHER: Agreement = Agreement { digest: false, key: Some(false) };

/// Recomputes digest and key. `identity` is the setting of the stream, if known.
pub fn agreement(stored: &RecordedEvent<'_>, identity: Option<&EventIdentity>) -> Agreement {
    let Some(Value::Object(facts)) = parsed(stored.facts) else { return NEITHER };
    let text = |name| facts.get(name).and_then(Value::as_str);
    let body = parsed(stored.body);
    let kind = text("content_type").map(media::essence);
    match text("mode") {
        Some("structured") => match body.as_ref().map(CloudEvent::structured) {
            Some(Ok(event)) => cloud(stored, &event),
            Some(Err(_)) | None => NEITHER,
        },
        Some(_) => {
            let Some(Value::Object(attributes)) = facts.get("attributes") else { return NEITHER };
            let is_json = kind.as_deref().is_some_and(media::is_json);
            let data = body.as_ref().filter(|_| is_json);
            if is_json && data.is_none() && !stored.body.is_empty() {
                return NEITHER;
            }
            CloudEvent::from_stored(attributes, stored.body, data)
                .map_or(NEITHER, |event| cloud(stored, &event))
        }
        None => plain(stored, identity, &facts, body.as_ref(), kind.as_deref()),
    }
}

fn parsed(bytes: &[u8]) -> Option<Value<'_>> {
    json::parse(bytes, &Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX }).ok()
}

fn cloud(stored: &RecordedEvent<'_>, event: &CloudEvent<'_>) -> Agreement {
    let [source, id] = ["source", "id"].map(|name| event.get(name).unwrap_or_default());
    let key = is_key(stored, &[b"cloudevent", source.as_bytes(), id.as_bytes()]);
    Agreement { digest: is_digest(stored, &event.content()), key: Some(key) }
}

fn plain(
    stored: &RecordedEvent<'_>,
    identity: Option<&EventIdentity>,
    facts: &Object<'_>,
    body: Option<&Value<'_>>,
    kind: Option<&str>,
) -> Agreement {
    let is_json = kind.is_none_or(media::is_json);
    let json = body.filter(|body| is_json && is_digest(stored, body));
    // A stream that accepts any type does not record a missing content type.
    let may_be_bytes = kind.is_none_or(|kind| !media::is_json(kind));
    let digest = json.is_some() || (may_be_bytes && Digest::of(stored.body) == stored.digest);
    let header = ["idempotency_key", "webhook_id"]
        .into_iter()
        .find_map(|name| facts.get(name).and_then(Value::as_str).map(|key| (name, key)));
    let key = match (header, identity) {
        (Some((name, key)), _) => {
            let line = facts.get("line").and_then(Value::as_i64).map(|line| line.to_string());
            let mut own = vec![name.as_bytes(), key.as_bytes()];
            own.extend(line.as_ref().map(String::as_bytes));
            Some(is_key(stored, &own))
        }
        // The key of a modified body cannot be determined.
        (None, Some(EventIdentity::Body)) if digest => {
            let is_of = |form: &[u8]| is_key(stored, &[form, stored.digest.as_bytes()]);
            Some((json.is_some() && is_of(b"body")) || (may_be_bytes && is_of(b"bytes")))
        }
        (None, Some(EventIdentity::Fields(fields))) => {
            Some(body.is_some_and(|body| is_named(stored, fields, body)))
        }
        // The stream's identity setting was different when this event arrived.
        (None, Some(EventIdentity::IdempotencyKey | EventIdentity::Body) | None) => None,
    };
    Agreement { digest, key }
}

fn is_named(stored: &RecordedEvent<'_>, fields: &[FieldPath], body: &Value<'_>) -> bool {
    FORMS.into_iter().any(|form| {
        let value = |field: &FieldPath| json::canonical(field.of(body)?, form).ok();
        let Some(values) = fields.iter().map(value).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let mut own: Vec<&[u8]> = vec![b"fields"];
        own.extend(values.iter().map(Vec::as_slice));
        is_key(stored, &own)
    })
}

fn is_key(stored: &RecordedEvent<'_>, own: &[&[u8]]) -> bool {
    let parts: Vec<&[u8]> =
        std::iter::once(stored.principal.as_bytes()).chain(own.iter().copied()).collect();
    stored.key == Some(Key::derive(stored.door, &parts))
}

fn is_digest(stored: &RecordedEvent<'_>, value: &Value<'_>) -> bool {
    let is_of = |form| {
        json::canonical(value, form).is_ok_and(|canonical| Digest::of(&canonical) == stored.digest)
    };
    FORMS.into_iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use admit_core::{Door, Entry, Event, Millis, Principal, Submission};
    use bytes::Bytes;

    use super::super::{Accept, Canonical, Events, Settings};
    use super::*;
    use crate::Contract as _;

    /// All events of a request, as admitted by the stream.
    fn admitted(settings: &Settings, headers: &[(&str, &str)], body: &str) -> Vec<Event> {
        let events = Events::new(settings.clone()).unwrap();
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let request = Submission {
            principal: Principal::new("shop"),
            received_at: Millis(0),
            body: Bytes::copy_from_slice(body.as_bytes()),
            headers: headers.collect(),
            nonce: [0; 16],
        };
        let pieces = events.split(request).unwrap().submissions;
        let vet = |piece| match events.vet(&Door::new("events/s"), piece) {
            Entry::Event(event) => event,
            Entry::Refused(refused) => panic!("{}", refused.message),
        };
        pieces.into_iter().map(vet).collect()
    }

    fn check(event: &Event, body: &[u8], identity: Option<&EventIdentity>) -> Agreement {
        let mut facts = Vec::new();
        json::write_object(&event.facts, &mut facts);
        let (key, digest) = (Some(event.key), event.digest);
        let stored =
            RecordedEvent { door: "events/s", principal: "shop", facts: &facts, body, key, digest };
        agreement(&stored, identity)
    }

    #[test]
    fn every_way_of_sending_is_recomputed_and_another_body_is_noticed() {
        const JSON: (&str, &str) = ("content-type", "application/json");
        const CLOUD: (&str, &str) = ("content-type", "application/cloudevents+json");
        const BATCH: (&str, &str) = ("content-type", "application/cloudevents-batch+json");
        const LINES: (&str, &str) = ("content-type", "application/x-ndjson");
        const TEXT: (&str, &str) = ("content-type", "text/plain");
        const NAMED: (&str, &str) = ("idempotency-key", "\"a b\"");
        const CE: [(&str, &str); 4] = [
            ("ce-specversion", "1.0"),
            ("ce-id", "1%25"),
            ("ce-source", "/s"),
            ("ce-type", "\"t%C3%A4\""),
        ];
        let event = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"ä":1}}"#;
        let fields = EventIdentity::Fields(vec![FieldPath::parse("a").unwrap()]);
        let header = EventIdentity::IdempotencyKey;
        for (identity, headers, body) in [
            (&header, vec![JSON, NAMED], "{\"a\": \"ä\"}".to_owned()),
            (&header, vec![LINES, NAMED], format!("{{\"a\":1}}\n\n{{\"a\":2}}\n{event}\n")),
            (&header, vec![TEXT, NAMED], "words".to_owned()),
            (&header, vec![NAMED], "{\"no\":\"type\"}".to_owned()),
            (&header, vec![CLOUD], event.to_owned()),
            (&header, vec![BATCH], format!("[{event}]")),
            (&header, [&CE[..], &[JSON]].concat(), "{\"a\":1}".to_owned()),
            (&header, [&CE[..], &[TEXT]].concat(), "words".to_owned()),
            (&fields, vec![JSON], "{\"a\":\"ä\",\"b\":1}".to_owned()),
            (&fields, vec![LINES], "{\"a\":1}\n{\"a\":2}".to_owned()),
            (&EventIdentity::Body, vec![JSON], "{\"a\":1}".to_owned()),
            (&EventIdentity::Body, vec![TEXT], "{\"a\":1}".to_owned()),
            (&EventIdentity::Body, vec![], "{\"a\":1}".to_owned()),
        ] {
            for canonical in [Canonical::Utf8, Canonical::Ascii, Canonical::Jcs] {
                let settings = Settings {
                    identity: identity.clone(),
                    accept: Accept::Any,
                    canonical,
                    ..Settings::named("s")
                };
                for event in admitted(&settings, &headers, &body) {
                    let whole = Agreement { digest: true, key: Some(true) };
                    assert_eq!(check(&event, &event.body, Some(identity)), whole, "{body}");
                    for changed in [&b"{\"a\":7}"[..], b"", b"{", b"[]"] {
                        let result = check(&event, changed, Some(identity));
                        assert!(!result.digest, "{body} {headers:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_is_unchecked_only_if_the_identity_setting_is_unknown() {
        let settings = Settings { identity: EventIdentity::Body, ..Settings::named("s") };
        let json = [("content-type", "application/json")];
        let [event] = admitted(&settings, &json, "{\"a\":1}").try_into().unwrap();
        let result = check(&event, &event.body, None);
        assert_eq!(result, Agreement { digest: true, key: None });
        let other = Event { key: Key::derive("events/s", &[b"other"]), ..event };
        let result = check(&other, &other.body, Some(&EventIdentity::Body));
        assert_eq!(result, Agreement { digest: true, key: Some(false) });
    }
}
