//! Whether the body of an admitted event still gives the digest and the key that are kept of it.
//!
//! Nothing is asked of the stream's settings where the facts tell: how the event travelled and the
//! header that named it are kept with it. A digest is taken over one of few spellings, and a body
//! that was changed gives none of them, so a stream that has changed its `canonical` still agrees.

use admit_core::json::{self, DEPTH_CEILING, Form, Limits, Object, Value};
use admit_core::{Digest, Key};

use super::cloud::Cloud;
use super::identity::Field;
use super::media;
use super::settings::Identity;

const FORMS: [Form; 3] = [Form::Utf8, Form::Ascii, Form::Jcs];

/// An event as the ledger keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Where it came in.
    pub door: &'a str,
    /// Who sent it.
    pub principal: &'a str,
    /// The contract's part of its receipt.
    pub facts: &'a [u8],
    /// Its raw body.
    pub body: &'a [u8],
    /// Its key.
    pub key: Option<Key>,
    /// The digest of its content.
    pub digest: Digest,
}

/// What the body says to what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether it gives the digest.
    pub digest: bool,
    /// Whether it gives the key; `None` where nobody says what names the events of the stream.
    pub key: Option<bool>,
}

const NEITHER: Agreement = Agreement { digest: false, key: Some(false) };

/// Recomputes digest and key. `identity` is what names plain events of the stream, if it is known.
pub fn agreement(kept: &Kept<'_>, identity: Option<&Identity>) -> Agreement {
    let Some(Value::Object(facts)) = parsed(kept.facts) else { return NEITHER };
    let text = |name| facts.get(name).and_then(Value::as_str);
    let body = parsed(kept.body);
    let kind = text("content_type").map(media::essence);
    match text("mode") {
        Some("structured") => match body.as_ref().map(Cloud::structured) {
            Some(Ok(event)) => cloud(kept, &event),
            Some(Err(_)) | None => NEITHER,
        },
        Some(_) => {
            let Some(Value::Object(attributes)) = facts.get("attributes") else { return NEITHER };
            let is_json = kind.as_deref().is_some_and(media::is_json);
            let data = body.as_ref().filter(|_| is_json);
            if is_json && data.is_none() && !kept.body.is_empty() {
                return NEITHER;
            }
            Cloud::kept(attributes, kept.body, data).map_or(NEITHER, |event| cloud(kept, &event))
        }
        None => plain(kept, identity, &facts, body.as_ref(), kind.as_deref()),
    }
}

fn parsed(bytes: &[u8]) -> Option<Value<'_>> {
    json::parse(bytes, &Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX }).ok()
}

fn cloud(kept: &Kept<'_>, event: &Cloud<'_>) -> Agreement {
    let [source, id] = ["source", "id"].map(|name| event.get(name).unwrap_or_default());
    let key = is_key(kept, &[b"cloudevent", source.as_bytes(), id.as_bytes()]);
    Agreement { digest: is_digest(kept, &event.content()), key: Some(key) }
}

fn plain(
    kept: &Kept<'_>,
    identity: Option<&Identity>,
    facts: &Object<'_>,
    body: Option<&Value<'_>>,
    kind: Option<&str>,
) -> Agreement {
    let is_json = kind.is_none_or(media::is_json);
    let json = body.filter(|body| is_json && is_digest(kept, body));
    // A body without a content type is not noted as such, where a stream takes any.
    let may_be_bytes = kind.is_none_or(|kind| !media::is_json(kind));
    let digest = json.is_some() || (may_be_bytes && Digest::of(kept.body) == kept.digest);
    let header = ["idempotency_key", "webhook_id"]
        .into_iter()
        .find_map(|name| facts.get(name).and_then(Value::as_str).map(|key| (name, key)));
    let key = match (header, identity) {
        (Some((name, key)), _) => {
            let line = facts.get("line").and_then(Value::as_i64).map(|line| line.to_string());
            let mut own = vec![name.as_bytes(), key.as_bytes()];
            own.extend(line.as_ref().map(String::as_bytes));
            Some(is_key(kept, &own))
        }
        // Of another body there is no telling which key it had.
        (None, Some(Identity::Body)) if digest => {
            let is_of = |form: &[u8]| is_key(kept, &[form, kept.digest.as_bytes()]);
            Some((json.is_some() && is_of(b"body")) || (may_be_bytes && is_of(b"bytes")))
        }
        (None, Some(Identity::Fields(fields))) => {
            Some(body.is_some_and(|body| is_named(kept, fields, body)))
        }
        // The stream was set up in another way when this event came.
        (None, Some(Identity::IdempotencyKey | Identity::Body) | None) => None,
    };
    Agreement { digest, key }
}

fn is_named(kept: &Kept<'_>, fields: &[Field], body: &Value<'_>) -> bool {
    FORMS.into_iter().any(|form| {
        let value = |field: &Field| json::canonical(field.of(body)?, form).ok();
        let Some(values) = fields.iter().map(value).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let mut own: Vec<&[u8]> = vec![b"fields"];
        own.extend(values.iter().map(Vec::as_slice));
        is_key(kept, &own)
    })
}

fn is_key(kept: &Kept<'_>, own: &[&[u8]]) -> bool {
    let parts: Vec<&[u8]> =
        std::iter::once(kept.principal.as_bytes()).chain(own.iter().copied()).collect();
    kept.key == Some(Key::derive(kept.door, &parts))
}

fn is_digest(kept: &Kept<'_>, value: &Value<'_>) -> bool {
    let is_of = |form| {
        json::canonical(value, form).is_ok_and(|canonical| Digest::of(&canonical) == kept.digest)
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

    /// Every event of a request, as the stream admits it.
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

    fn asked(event: &Event, body: &[u8], identity: Option<&Identity>) -> Agreement {
        let mut facts = Vec::new();
        json::write_object(&event.facts, &mut facts);
        let (key, digest) = (Some(event.key), event.digest);
        let kept = Kept { door: "events/s", principal: "shop", facts: &facts, body, key, digest };
        agreement(&kept, identity)
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
        let fields = Identity::Fields(vec![Field::parse("a").unwrap()]);
        let header = Identity::IdempotencyKey;
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
            (&Identity::Body, vec![JSON], "{\"a\":1}".to_owned()),
            (&Identity::Body, vec![TEXT], "{\"a\":1}".to_owned()),
            (&Identity::Body, vec![], "{\"a\":1}".to_owned()),
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
                    assert_eq!(asked(&event, &event.body, Some(identity)), whole, "{body}");
                    for changed in [&b"{\"a\":7}"[..], b"", b"{", b"[]"] {
                        let said = asked(&event, changed, Some(identity));
                        assert!(!said.digest, "{body} {headers:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_is_left_open_only_where_nobody_says_what_it_is_made_of() {
        let settings = Settings { identity: Identity::Body, ..Settings::named("s") };
        let json = [("content-type", "application/json")];
        let [event] = admitted(&settings, &json, "{\"a\":1}").try_into().unwrap();
        let said = asked(&event, &event.body, None);
        assert_eq!(said, Agreement { digest: true, key: None });
        let other = Event { key: Key::derive("events/s", &[b"other"]), ..event };
        let said = asked(&other, &other.body, Some(&Identity::Body));
        assert_eq!(said, Agreement { digest: true, key: Some(false) });
    }
}
