//! Canonical event envelope: a closed schema, and the minimum that a receipt requires.

use std::collections::BTreeMap;

use admit_core::json::{Object, Value};

/// Version of the envelope schema.
pub const SCHEMA_VERSION: &str = "0.1.0";

/// Pins that a class can require, in the order receipts list them.
pub const PINS: [&str; 7] = [
    "platform_run_id",
    "scenario_run_id",
    "manifest_fingerprint",
    "parameter_hash",
    "seed",
    "scenario_id",
    "run_id",
];

/// Maximum number of unknown keys kept with the envelope.
const UNKNOWN_KEYS_MAX: usize = 32;

/// Maximum number of violations reported.
const VIOLATIONS_MAX: usize = 20;

/// Validation rule of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// String of 1 to this many characters.
    Text(usize),
    /// This many lower-case hex digits.
    Hex(usize),
    /// Timestamp with exactly six fractional digits and a Z. Only the form is checked.
    Time,
    /// `platform_20260212T085637Z`
    Run,
    /// 0 to 2^64 - 1.
    Seed,
    /// String of 1 to 256 characters, or a non-negative integer.
    Scenario,
    /// An object.
    Payload,
}

/// Fields of an envelope: name, whether required, rule.
const FIELDS: [(&str, bool, Rule); 17] = [
    ("event_id", true, Rule::Text(256)),
    ("event_type", true, Rule::Text(256)),
    ("ts_utc", true, Rule::Time),
    ("manifest_fingerprint", true, Rule::Hex(64)),
    ("parameter_hash", false, Rule::Hex(64)),
    ("seed", false, Rule::Seed),
    ("scenario_id", false, Rule::Scenario),
    ("run_id", false, Rule::Hex(32)),
    ("platform_run_id", false, Rule::Run),
    ("scenario_run_id", false, Rule::Hex(32)),
    ("emitted_at_utc", false, Rule::Time),
    ("schema_version", false, Rule::Text(64)),
    ("trace_id", false, Rule::Text(128)),
    ("span_id", false, Rule::Text(128)),
    ("parent_event_id", false, Rule::Text(256)),
    ("producer", false, Rule::Text(128)),
    ("payload", false, Rule::Payload),
];

/// Returns whether an envelope has a field of this name.
pub fn is_field(name: &str) -> bool {
    FIELDS.iter().any(|(field, ..)| *field == name)
}

/// Returns a key that appears twice in one object of the value, at any depth. Readers disagree on
/// which of the two wins, so the hashed content could differ from the content read from the bus.
fn repeated_key<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Object(object) => {
            let inside = || object.iter().find_map(|(_, value)| repeated_key(value));
            object.repeated_key().or_else(inside)
        }
        Value::Array(values) => values.iter().find_map(repeated_key),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => None,
    }
}

/// Returns all schema violations; empty for a valid envelope. Values from the sender are not
/// repeated.
pub fn violations(envelope: &Object<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let inside = || envelope.iter().find_map(|(_, value)| repeated_key(value));
    if let Some(name) = envelope.repeated_key().or_else(inside) {
        let shown: String = name.chars().take(64).collect();
        found.push(format!("the key {shown:?} appears more than once in one object"));
    }
    for (name, is_required, rule) in FIELDS {
        match envelope.get(name) {
            None if is_required => found.push(format!("{name} is missing")),
            None => {}
            Some(value) => {
                if let Some(expected) = expected_form(rule, value) {
                    found.push(format!("{name} must be {expected}"));
                }
            }
        }
    }
    for (name, _) in envelope {
        if found.len() > VIOLATIONS_MAX {
            break;
        }
        if !is_field(name) {
            let shown: String = name.chars().take(64).collect();
            found.push(format!("{shown:?} is not a field of an envelope"));
        }
    }
    found.truncate(VIOLATIONS_MAX);
    found
}

/// Returns whether this field is present and satisfies its rule.
pub fn is_sound(envelope: &Object<'_>, name: &str) -> bool {
    let rule = FIELDS.iter().find(|(field, ..)| *field == name);
    let value = envelope.get(name);
    rule.zip(value).is_some_and(|((_, _, rule), value)| expected_form(*rule, value).is_none())
}

/// Returns the text of a valid field.
pub fn text<'o>(envelope: &'o Object<'_>, name: &str) -> Option<&'o str> {
    if is_sound(envelope, name) { envelope.get(name)?.as_str() } else { None }
}

/// Returns why no receipt of any kind can be written for this envelope; empty if one can.
///
/// A receipt names the event, its time, its manifest and its run, so these are required. A
/// timestamp in another format is accepted: the receipt copies it as it is.
pub fn unreceiptable(envelope: &Object<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["platform_run_id", "manifest_fingerprint", "event_id"] {
        if !is_sound(envelope, name) {
            let how = if is_missing(envelope, name) { "is missing" } else { "is malformed" };
            found.push(format!("{name} {how}"));
        }
    }
    match envelope.get("ts_utc") {
        Some(Value::String(text)) if !text.is_empty() => {}
        None => found.push("ts_utc is missing".to_owned()),
        Some(_) => found.push("ts_utc is not a string with a time".to_owned()),
    }
    if let Some(seed) = envelope.get("seed")
        && !seed.is_null()
        && integer(seed).is_none()
    {
        found.push("seed is not an integer".to_owned());
    }
    found
}

/// Returns whether a pin is missing: absent, null or empty. Zero counts as present.
pub fn is_missing(envelope: &Object<'_>, name: &str) -> bool {
    match envelope.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Returns the pins as they were sent, without the missing ones.
pub fn pins(envelope: &Object<'_>) -> Object<'static> {
    PINS.into_iter()
        .filter(|name| !is_missing(envelope, name))
        .filter_map(|name| Some((name, envelope.get(name)?.clone().into_owned())))
        .collect()
}

/// Returns the envelope without its payload; of repeated keys the last one is kept. Unknown keys
/// are limited to the first `UNKNOWN_KEYS_MAX`; the ledger has the full body.
pub fn without_payload(envelope: &Object<'_>) -> Object<'static> {
    let mut last = BTreeMap::new();
    if envelope.repeated_key().is_some() {
        last.extend(envelope.iter().enumerate().map(|(place, (name, _))| (name, place)));
    }
    let mut unknown_keys = 0;
    envelope
        .iter()
        .enumerate()
        .filter(|(place, (name, _))| {
            *name != "payload" && last.get(name).is_none_or(|last| last == place)
        })
        .filter(|(_, (name, _))| {
            unknown_keys += usize::from(!is_field(name));
            unknown_keys <= UNKNOWN_KEYS_MAX || is_field(name)
        })
        .map(|(_, (name, value))| (name.to_owned(), value.clone().into_owned()))
        .collect()
}

/// Returns the expected form if the value violates the rule.
fn expected_form(rule: Rule, value: &Value<'_>) -> Option<String> {
    let is_text =
        |max| value.as_str().is_some_and(|text| (1..=max).contains(&text.chars().count()));
    let (is_valid, expected) = match rule {
        Rule::Text(max) => (is_text(max), format!("a string of 1 to {max} characters")),
        Rule::Hex(digits) => (
            value.as_str().is_some_and(|text| is_hex(text, digits)),
            format!("{digits} lower-case hex digits"),
        ),
        Rule::Time => (
            value.as_str().is_some_and(|text| is_form(text, "0000-00-00T00:00:00.000000Z")),
            "a time such as 2026-01-01T00:00:00.000000Z".to_owned(),
        ),
        Rule::Run => (
            value.as_str().is_some_and(|text| is_form(text, "platform_00000000T000000Z")),
            "a run such as platform_20260212T085637Z".to_owned(),
        ),
        Rule::Seed => (
            integer(value).is_some_and(|seed| (0..=u128::from(u64::MAX) as i128).contains(&seed)),
            "an integer from 0 to 18446744073709551615".to_owned(),
        ),
        Rule::Scenario => (
            is_text(256) || is_count(value),
            "a string of 1 to 256 characters or an integer from 0 on".to_owned(),
        ),
        Rule::Payload => (value.is_object(), "an object".to_owned()),
    };
    if is_valid { None } else { Some(expected) }
}

/// Integer in the JSON Schema sense: `1.0` is one. Out-of-range values saturate.
fn integer(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(digits) => {
            let cut = if digits.starts_with('-') { i128::MIN } else { i128::MAX };
            Some(digits.parse().unwrap_or(cut))
        }
        // A cast of a float saturates.
        Value::Float(number) if number.fract() == 0.0 => Some(*number as i128),
        Value::Null
        | Value::Bool(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}

fn is_count(value: &Value<'_>) -> bool {
    integer(value).is_some_and(|number| number >= 0)
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `text` matches `form`, in which `0` stands for any digit.
fn is_form(text: &str, form: &str) -> bool {
    let fits = |(byte, expected): (u8, u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}
