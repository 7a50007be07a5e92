//! Stored JSON text of source events and links.

use super::fingerprint::{Fingerprint, FingerprintKind};
use super::link::{Confidence, Link, LinkDiagnostics, LinkStatus, MatchBasis};
use super::merge::{Entity, EntityField};
use super::source_event::{Acceptance, EventFields, ParseReport, ParseStatus, SourceEvent};
use super::state::{ProcessingState, Transition};
use crate::hash::{Key, unhex32};
use crate::json::{self, Limits, Object, Value};
use crate::receipt::Seq;
use crate::time::Millis;

/// Invalid stored text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid stored text: {0} is missing or unreadable")]
pub struct StoredTextError(&'static str);

/// Serialises an object.
fn text(object: &Object<'_>) -> String {
    let mut out = Vec::new();
    json::write_object(object, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn read(text: &str) -> Result<Object<'_>, StoredTextError> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    match json::parse(text.as_bytes(), &limits) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(StoredTextError("object")),
    }
}

fn string(object: &Object<'_>, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn required<T>(found: Option<T>, name: &'static str) -> Result<T, StoredTextError> {
    found.ok_or(StoredTextError(name))
}

fn number(object: &Object<'_>, name: &str) -> Option<i64> {
    object.get(name).and_then(Value::as_i64)
}

fn is_set(object: &Object<'_>, name: &str) -> bool {
    object.get(name).and_then(Value::as_bool) == Some(true)
}

fn acceptance(object: &Object<'_>) -> Option<Acceptance> {
    let (by, reason) = (string(object, "by")?, string(object, "reason")?);
    Some(Acceptance { by, reason, at: Millis(number(object, "at")?) })
}

impl SourceEvent {
    /// Serialises everything but the fields, which are stored separately: see
    /// [`EventFields::as_str`].
    pub fn to_text(&self) -> String {
        let notes: Vec<&str> = self.parse.notes.iter().map(String::as_str).collect();
        let mut head = Object::from_iter([
            ("seq", Value::from(self.seq.0)),
            ("key", self.key.to_string().into()),
            ("source", self.source.as_str().into()),
            ("hard_key", self.hard_key.as_deref().into()),
            ("group", self.group.as_str().into()),
            ("number", self.number.into()),
            ("number_from", self.number_from.as_deref().into()),
            ("start", self.start.into()),
            ("end", self.end.into()),
            ("date", self.date.as_deref().into()),
            ("time", self.time.as_deref().into()),
            ("event_time", self.event_time.into()),
            ("event_time_late", self.event_time_late.into()),
            ("local_date", self.local_date.as_deref().into()),
            ("received_at", self.received_at.0.into()),
            ("revision_of", self.revision_of.map(|seq| seq.0).into()),
            ("collides", self.collides.into()),
            ("updates", self.updates.into()),
            ("claims", self.claims.as_deref().into()),
            ("payload", self.payload.as_deref().into()),
            ("enriches", self.enriches.into()),
            ("parse_status", self.parse.status.word().into()),
            ("parse_reason", self.parse.reason.as_deref().into()),
            ("parse_notes", notes.into()),
        ]);
        if let Some(Acceptance { by, reason, at }) = &self.accepted {
            let accepted = [("by", Value::from(by.as_str())), ("reason", reason.as_str().into())];
            let mut accepted = Object::from_iter(accepted);
            accepted.push("at", at.0);
            head.push("accepted", accepted);
        }
        text(&head)
    }

    /// Parses an event written by [`Self::to_text`] and adds its fields.
    ///
    /// # Errors
    /// If the text is invalid.
    pub fn from_text(head: &str, fields: EventFields) -> Result<Self, StoredTextError> {
        let head = read(head)?;
        let word = required(string(&head, "parse_status"), "parse_status")?;
        let status = ParseStatus::ALL.into_iter().find(|status| status.word() == word);
        let notes = head.get("parse_notes").and_then(Value::as_array).unwrap_or_default();
        let seq = |name| head.get(name).and_then(Value::as_u64).map(Seq);
        let key = string(&head, "key").and_then(|key| unhex32(&key)).map(Key::from_bytes);
        Ok(Self {
            seq: required(seq("seq"), "seq")?,
            key: required(key, "key")?,
            source: required(string(&head, "source"), "source")?,
            hard_key: string(&head, "hard_key"),
            group: required(string(&head, "group"), "group")?,
            number: number(&head, "number"),
            number_from: string(&head, "number_from"),
            start: number(&head, "start"),
            end: number(&head, "end"),
            date: string(&head, "date"),
            time: string(&head, "time"),
            event_time: number(&head, "event_time"),
            event_time_late: number(&head, "event_time_late"),
            local_date: string(&head, "local_date"),
            received_at: Millis(required(number(&head, "received_at"), "received_at")?),
            revision_of: seq("revision_of"),
            collides: is_set(&head, "collides"),
            updates: is_set(&head, "updates"),
            accepted: head.get("accepted").and_then(Value::as_object).and_then(acceptance),
            claims: string(&head, "claims"),
            payload: string(&head, "payload"),
            enriches: is_set(&head, "enriches"),
            parse: ParseReport {
                status: required(status, "parse_status")?,
                reason: string(&head, "parse_reason"),
                notes: notes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            },
            fields,
        })
    }
}

fn fingerprint_object(fingerprint: &Fingerprint) -> Object<'_> {
    Object::from_iter([
        ("kind", Value::from(fingerprint.kind.word())),
        ("value", fingerprint.value.as_str().into()),
    ])
}

fn fingerprint_from(value: &Value<'_>) -> Option<Fingerprint> {
    let object = value.as_object()?;
    let word = string(object, "kind")?;
    let kind = FingerprintKind::ALL.into_iter().find(|kind| kind.word() == word)?;
    Some(Fingerprint { kind, value: string(object, "value")? })
}

fn fingerprint_list(fingerprints: &[Fingerprint]) -> Value<'_> {
    fingerprints.iter().map(fingerprint_object).collect()
}

impl Link {
    /// Serialises the link for storage.
    pub fn to_text(&self) -> String {
        let diagnostics = Object::from_iter([
            ("candidate_count", Value::from(self.diagnostics.candidates)),
            ("parsed_candidate_count", self.diagnostics.timed_candidates.into()),
            ("best_diff_seconds", self.diagnostics.best_diff_seconds.into()),
            ("window_seconds", self.diagnostics.window_seconds.into()),
        ]);
        text(&Object::from_iter([
            ("link_status", Value::from(self.status.word())),
            ("state", self.state.word().into()),
            ("reason_code", self.reason.as_str().into()),
            ("confidence", self.confidence.word().into()),
            ("matched", self.matched.map(MatchBasis::word).into()),
            ("record_id", self.record_id.as_deref().into()),
            ("fingerprints", fingerprint_list(&self.fingerprints)),
            ("number", self.number.into()),
            ("number_from", self.number_from.as_deref().into()),
            ("is_applied", self.is_applied.into()),
            ("attempt", self.attempt.into()),
            ("diagnostics", diagnostics.into()),
            ("unsent", self.unsent.as_deref().into()),
        ]))
    }

    /// Outcome of the event, for the reply to its sender.
    pub fn outcome(&self) -> Object<'static> {
        let fingerprint = self.fingerprint().map(|one| {
            Object::from_iter([
                ("kind", Value::from(one.kind.word())),
                ("value", one.value.clone().into()),
            ])
        });
        Object::from_iter([
            ("state", Value::from(self.state.word())),
            ("link_status", self.status.word().into()),
            ("reason_code", self.reason.clone().into()),
            ("confidence", self.confidence.word().into()),
            ("fingerprint", fingerprint.into()),
            ("record_id", self.record_id.clone().into()),
            ("is_applied", self.is_applied.into()),
        ])
    }

    /// Parses a link written by [`Self::to_text`].
    ///
    /// # Errors
    /// If the text is invalid.
    pub fn from_text(stored: &str) -> Result<Self, StoredTextError> {
        let object = read(stored)?;
        let word = |name| object.get(name).and_then(Value::as_str);
        let fingerprints = object.get("fingerprints").and_then(Value::as_array);
        let empty = Object::new();
        let diagnostics = object.get("diagnostics").and_then(Value::as_object).unwrap_or(&empty);
        let count =
            |name| number(diagnostics, name).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let attempt = number(&object, "attempt").and_then(|n| u32::try_from(n).ok());
        Ok(Self {
            status: required(word("link_status").and_then(LinkStatus::parse), "link_status")?,
            state: required(word("state").and_then(ProcessingState::parse), "state")?,
            reason: required(string(&object, "reason_code"), "reason_code")?,
            confidence: required(word("confidence").and_then(Confidence::parse), "confidence")?,
            matched: word("matched").and_then(MatchBasis::parse),
            record_id: string(&object, "record_id"),
            fingerprints: fingerprints
                .unwrap_or_default()
                .iter()
                .filter_map(fingerprint_from)
                .collect(),
            number: number(&object, "number"),
            number_from: string(&object, "number_from"),
            is_applied: is_set(&object, "is_applied"),
            attempt: required(attempt, "attempt")?,
            unsent: string(&object, "unsent"),
            diagnostics: LinkDiagnostics {
                candidates: count("candidate_count"),
                timed_candidates: count("parsed_candidate_count"),
                best_diff_seconds: diagnostics.get("best_diff_seconds").and_then(Value::as_u64),
                window_seconds: number(diagnostics, "window_seconds").unwrap_or_default(),
            },
        })
    }
}

impl Entity {
    /// Serialises the fields: `{name: {value, source, event}}`, where `event` is a ledger position.
    pub fn fields_text(&self) -> String {
        let with_origin = |field: &EntityField| {
            Object::from_iter([
                ("value", field.value.clone()),
                ("source", field.source.clone().into()),
                ("event", field.event.0.into()),
            ])
        };
        text(
            &self
                .fields
                .iter()
                .map(|field| (field.name.clone(), with_origin(field).into()))
                .collect(),
        )
    }

    /// Serialises the fingerprints: `{kind: [value, …]}`.
    pub fn fingerprints_text(&self) -> String {
        let of = |kind: FingerprintKind| {
            let values = self.fingerprints.iter().filter(move |one| one.kind == kind);
            let values: Vec<&str> = values.map(|one| one.value.as_str()).collect();
            Some((kind.word(), Value::from(values.clone()))).filter(|_| !values.is_empty())
        };
        text(&FingerprintKind::ALL.into_iter().filter_map(of).collect())
    }
}

impl Transition {
    /// Serialises the diagnostics of the transition.
    pub fn diagnostics_text(&self) -> String {
        let fingerprint = self.fingerprint.as_ref().map(fingerprint_object);
        text(&Object::from_iter([
            ("source", Value::from(self.source.as_str())),
            ("round_fingerprint", fingerprint.into()),
            ("link_status", self.link_status.word().into()),
            ("confidence", self.confidence.word().into()),
            ("reason_code", self.reason.as_deref().into()),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_round_trips() {
        let mut event = SourceEvent::new("s", Key::derive("d", &[b"k"]), Millis(5));
        event.seq = Seq(7);
        event.hard_key = Some("h|1".to_owned());
        event.group = "g".to_owned();
        event.number = Some(2);
        event.start = Some(-1);
        event.event_time_late = Some(9);
        event.revision_of = Some(Seq(3));
        event.collides = true;
        event.parse = ParseReport {
            status: ParseStatus::Partial,
            reason: Some("r".to_owned()),
            notes: vec!["n".to_owned()],
        };
        event.fields = EventFields::of(&Object::from_iter([("a", Value::from(1))]));
        assert_eq!(SourceEvent::from_text(&event.to_text(), event.fields.clone()), Ok(event));
        assert_eq!(
            SourceEvent::from_text("{}", EventFields::default()),
            Err(StoredTextError("parse_status"))
        );
    }

    #[test]
    fn a_link_round_trips() {
        let link = Link {
            status: LinkStatus::Linked,
            state: ProcessingState::Enriched,
            reason: "resolved".to_owned(),
            confidence: Confidence::High,
            matched: Some(MatchBasis::Fingerprint(FingerprintKind::End)),
            record_id: Some("r".to_owned()),
            fingerprints: vec![Fingerprint {
                kind: FingerprintKind::Clock,
                value: "a|1|d|t".to_owned(),
            }],
            number: Some(1),
            number_from: Some("header".to_owned()),
            is_applied: true,
            attempt: 2,
            diagnostics: LinkDiagnostics {
                candidates: 2,
                timed_candidates: 1,
                best_diff_seconds: Some(3),
                window_seconds: 2700,
            },
            unsent: Some("publish_unknown".to_owned()),
        };
        assert_eq!(Link::from_text(&link.to_text()), Ok(link));
        assert_eq!(Link::from_text("[]"), Err(StoredTextError("object")));
    }
}
