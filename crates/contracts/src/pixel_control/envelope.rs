//! Hard rules: the body, its transport part and the ten envelope fields.
//!
//! Written by hand because this is the hot path; `schemas/pixel-control/request.json` defines the
//! same rules, and tests compare the two.

use std::collections::HashSet;

use admit_core::json::{Object, Value};

use super::enums::{Category, SchemaVersion, is_event_id, is_event_name, is_idempotency_key};
use super::php;
use super::violations::Violations;
use crate::text::bounded;

const BODY: [&str; 2] = ["envelope", "transport"];
const TRANSPORT: [&str; 4] = ["attempt", "max_attempts", "retry_backoff_ms", "auth_mode"];
const ENVELOPE: [&str; 10] = [
    "event_name",
    "schema_version",
    "event_id",
    "event_category",
    "source_callback",
    "source_sequence",
    "source_time",
    "idempotency_key",
    "payload",
    "metadata",
];

/// Longest name of an unknown field repeated in a message, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Known fields of a closed object, and the names of unknown ones.
struct Fields<'v, 'a, const N: usize> {
    /// Name of the object in messages.
    path: &'static str,
    names: &'static [&'static str; N],
    values: [Option<&'v Value<'a>>; N],
    unknown: Vec<&'v str>,
}

impl<'v, 'a, const N: usize> Fields<'v, 'a, N> {
    /// Of repeated keys the last one wins.
    fn read(path: &'static str, names: &'static [&'static str; N], object: &'v Object<'a>) -> Self {
        let mut fields = Self { path, names, values: [None; N], unknown: Vec::new() };
        let mut next = 0;
        for (key, value) in object {
            // Producers send the fields in the contract's order, so the next one is tried first.
            let at = if names.get(next) == Some(&key) {
                Some(next)
            } else {
                names.iter().position(|name| *name == key)
            };
            if let Some(at) = at {
                fields.values[at] = Some(value);
                next = at + 1;
            } else {
                fields.unknown.push(key);
            }
        }
        fields
    }

    /// Returns the value of the known field `name`.
    fn get(&self, name: &str) -> Option<&'v Value<'a>> {
        self.names.iter().position(|known| *known == name).and_then(|at| self.values[at])
    }

    /// Adds violations for missing and unknown fields.
    fn check_names(&self, violations: &mut Violations) {
        let path = self.path;
        for (name, value) in self.names.iter().zip(self.values) {
            if value.is_none() {
                violations.add(|| format!("{path}.{name} is missing"));
            }
        }
        let mut reported = HashSet::new();
        for name in self.unknown.iter().filter(|name| reported.insert(**name)) {
            let words =
                || format!("{path} has an unknown field {:?}", bounded(name, NAME_CHARS_MAX));
            violations.add(words);
        }
    }

    /// Parses the field with `read`; `None` and a violation of `rule` if that fails. A missing
    /// field was reported before.
    fn check<T>(
        &self,
        violations: &mut Violations,
        name: &'static str,
        rule: &str,
        read: impl FnOnce(&'v Value<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(name)?;
        let found = read(value);
        if found.is_none() {
            violations.add(|| format!("{}.{name} must be {rule}", self.path));
        }
        found
    }
}

/// Split body; its parts are not validated yet.
pub(super) struct RequestBody<'v, 'a> {
    body: Option<Fields<'v, 'a, 2>>,
    transport: Option<Fields<'v, 'a, 4>>,
    envelope: Option<Fields<'v, 'a, 10>>,
}

/// Envelope that satisfies every hard rule.
pub(super) struct PixelEnvelope<'v, 'a> {
    /// The whole envelope.
    pub(super) whole: &'v Value<'a>,
    pub(super) event_name: &'v str,
    pub(super) version: SchemaVersion,
    pub(super) event_id: &'v str,
    pub(super) category: Category,
    /// Sequence as it was sent.
    pub(super) source_sequence: &'v Value<'a>,
    /// Sequence for ordering.
    pub(super) sequence: u64,
    /// Seconds since the Unix epoch.
    pub(super) source_time: u64,
    pub(super) idempotency_key: &'v str,
    pub(super) payload: &'v Value<'a>,
    pub(super) metadata: &'v Value<'a>,
}

impl<'v, 'a> RequestBody<'v, 'a> {
    /// Splits a body.
    pub(super) fn read(value: &'v Value<'a>) -> Self {
        let body = php::object(value).map(|object| Fields::read("body", &BODY, object));
        let part = |name| body.as_ref().and_then(|body| body.get(name)).and_then(php::object);
        Self {
            transport: part("transport").map(|o| Fields::read("transport", &TRANSPORT, o)),
            envelope: part("envelope").map(|o| Fields::read("envelope", &ENVELOPE, o)),
            body,
        }
    }

    /// Delivery attempt counted by the producer, if readable.
    pub(super) fn attempt(&self) -> Option<u32> {
        let attempt = self.transport.as_ref()?.get("attempt").and_then(php::whole)?;
        (attempt > 0).then(|| u32::try_from(attempt).unwrap_or(u32::MAX))
    }

    /// Returns an envelope field as it was sent, valid or not.
    pub(super) fn envelope_field(&self, name: &str) -> Option<&'v Value<'a>> {
        self.envelope.as_ref()?.get(name)
    }

    /// Checks the body and its transport part.
    pub(super) fn check_body(&self) -> Violations {
        let mut violations = Violations::default();
        let Some(body) = &self.body else {
            violations.add(|| "body must be an object".to_owned());
            return violations;
        };
        body.check_names(&mut violations);
        body.check(&mut violations, "envelope", "an object", php::object);
        body.check(&mut violations, "transport", "an object", php::object);
        if let Some(transport) = &self.transport {
            check_transport(transport, &mut violations);
        }
        violations
    }

    /// Returns the envelope's schema version if it is readable but unsupported.
    pub(super) fn unknown_version(&self) -> Option<&'v str> {
        let text = self.envelope_field("schema_version").and_then(|value| value.as_str())?;
        SchemaVersion::parse(text).is_none().then_some(text)
    }

    /// Returns the envelope, or all violations in its ten fields.
    pub(super) fn check_envelope(&self) -> Result<PixelEnvelope<'v, 'a>, Violations> {
        let mut violations = Violations::default();
        match self.read_envelope(&mut violations) {
            Some(envelope) if violations.is_empty() => Ok(envelope),
            Some(_) | None => Err(violations),
        }
    }

    /// Reads every field before it gives up, so that one reply lists all violations.
    fn read_envelope(&self, violations: &mut Violations) -> Option<PixelEnvelope<'v, 'a>> {
        let fields = self.envelope.as_ref()?;
        let whole = self.body.as_ref()?.get("envelope")?;
        let v = violations;
        fields.check_names(v);
        let event_name = fields.check(v, "event_name", EVENT_NAME_RULE, |value| {
            value.as_str().filter(|text| is_event_name(text))
        });
        let version = fields.check(v, "schema_version", "a known version", |value| {
            value.as_str().and_then(SchemaVersion::parse)
        });
        let event_id = fields.check(v, "event_id", EVENT_ID_RULE, |value| {
            value.as_str().filter(|text| is_event_id(text))
        });
        let category = fields.check(v, "event_category", CATEGORY_RULE, |value| {
            value.as_str().and_then(Category::parse)
        });
        let source_callback =
            fields.check(v, "source_callback", "a string that is not empty", |value| {
                value.as_str().filter(|text| !text.is_empty())
            });
        let sequence = fields.check(v, "source_sequence", "an integer of at least 1", |value| {
            Some((value, at_least_1(value)?))
        });
        let source_time = fields.check(v, "source_time", "an integer of at least 0", php::whole);
        let idempotency_key = fields.check(v, "idempotency_key", IDEMPOTENCY_KEY_RULE, |value| {
            value.as_str().filter(|text| is_idempotency_key(text))
        });
        let payload = fields.check(v, "payload", "an object", an_object);
        let metadata = fields.check(v, "metadata", "an object", an_object);
        source_callback?;
        let (source_sequence, sequence) = sequence?;
        Some(PixelEnvelope {
            whole,
            event_name: event_name?,
            version: version?,
            event_id: event_id?,
            category: category?,
            source_sequence,
            sequence,
            source_time: source_time?,
            idempotency_key: idempotency_key?,
            payload: payload?,
            metadata: metadata?,
        })
    }
}

const EVENT_NAME_RULE: &str = "a string that matches ^pixel_control\\.(connectivity|lifecycle|player|combat|mode)\\.[a-z0-9]+(?:_[a-z0-9]+)*$";
const EVENT_ID_RULE: &str = "a string that matches ^pc-evt-(connectivity|lifecycle|player|combat|mode)-[a-z0-9]+(?:_[a-z0-9]+)*-[1-9][0-9]*$";
const IDEMPOTENCY_KEY_RULE: &str = "a string that matches ^pc-idem-[a-f0-9]{40}$";
const CATEGORY_RULE: &str = "one of connectivity, lifecycle, player, combat, mode";

fn check_transport(fields: &Fields<'_, '_, 4>, violations: &mut Violations) {
    fields.check_names(violations);
    fields.check(violations, "attempt", "an integer of at least 1", at_least_1);
    fields.check(violations, "max_attempts", "an integer of at least 1", at_least_1);
    fields.check(violations, "retry_backoff_ms", "an integer of at least 0", php::whole);
    fields.check(violations, "auth_mode", "one of none, bearer, api_key", |value| {
        value.as_str().filter(|text| ["none", "bearer", "api_key"].contains(text))
    });
}

fn at_least_1(value: &Value<'_>) -> Option<u64> {
    php::whole(value).filter(|number| *number >= 1)
}

fn an_object<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Value<'a>> {
    php::object(value).is_some().then_some(value)
}
