//! The canonical event envelope: a closed schema, and what of it a receipt cannot do without.

use std::collections::BTreeMap;

use admit_core::json::{Object, Value};

/// The version of the envelope's schema.
pub const SCHEMA_VERSION: &str = "0.1.0";

/// The pins a class can ask for, in the order receipts list them.
pub const PINS: [&str; 7] = [
    "platform_run_id",
    "scenario_run_id",
    "manifest_fingerprint",
    "parameter_hash",
    "seed",
    "scenario_id",
    "run_id",
];

/// How many keys that no envelope has are kept beside the others.
const FOREIGN_MAX: usize = 32;

/// How many violations are told.
const TOLD_MAX: usize = 20;

/// What a field must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A string of 1 to so many characters.
    Text(usize),
    /// So many lower hex digits.
    Hex(usize),
    /// A time with exactly six digits and a Z. Only the form is looked at.
    Time,
    /// `platform_20260212T085637Z`
    Run,
    /// 0 to 2^64 - 1.
    Seed,
    /// A string of 1 to 256 characters, or an integer from 0 on.
    Scenario,
    /// An object.
    Payload,
}

/// The fields of an envelope, whether each must be there, and what it must be.
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

/// Whether an envelope has a field of this name.
pub fn is_field(name: &str) -> bool {
    FIELDS.iter().any(|(field, ..)| *field == name)
}

/// A key that appears twice in one object of the value, at any depth. Readers disagree about which
/// of the two counts, so what was hashed and what is read from the bus could differ.
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

/// Everything that breaks the schema, in words; nothing for a good envelope. Values are the
/// sender's own and are not repeated.
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
                if let Some(wanted) = broken(rule, value) {
                    found.push(format!("{name} must be {wanted}"));
                }
            }
        }
    }
    for (name, _) in envelope {
        if found.len() > TOLD_MAX {
            break;
        }
        if !is_field(name) {
            let shown: String = name.chars().take(64).collect();
            found.push(format!("{shown:?} is not a field of an envelope"));
        }
    }
    found.truncate(TOLD_MAX);
    found
}

/// Whether the envelope's own value of this field keeps its rule.
pub fn is_sound(envelope: &Object<'_>, name: &str) -> bool {
    let rule = FIELDS.iter().find(|(field, ..)| *field == name);
    let value = envelope.get(name);
    rule.zip(value).is_some_and(|((_, _, rule), value)| broken(*rule, value).is_none())
}

/// The text of a sound field.
pub fn text<'o>(envelope: &'o Object<'_>, name: &str) -> Option<&'o str> {
    if is_sound(envelope, name) { envelope.get(name)?.as_str() } else { None }
}

/// Why no receipt of any kind can be written for this envelope, if that is so.
///
/// A receipt names the event, its time, its world and its run, so these must be there. A time that
/// is merely written in another form can stand on a receipt.
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

/// Whether a pin is missing: absent, null or empty. Zero is there.
pub fn is_missing(envelope: &Object<'_>, name: &str) -> bool {
    match envelope.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// The pins of an envelope as they were sent, without the missing ones.
pub fn pins(envelope: &Object<'_>) -> Object<'static> {
    PINS.into_iter()
        .filter(|name| !is_missing(envelope, name))
        .filter_map(|name| Some((name, envelope.get(name)?.clone().into_owned())))
        .collect()
}

/// The envelope without its payload, each key once: of repeated ones the last counts. Of keys that
/// no envelope has, the first few are enough; the ledger has the body.
pub fn without_payload(envelope: &Object<'_>) -> Object<'static> {
    let mut last = BTreeMap::new();
    if envelope.repeated_key().is_some() {
        last.extend(envelope.iter().enumerate().map(|(place, (name, _))| (name, place)));
    }
    let mut foreign = 0;
    envelope
        .iter()
        .enumerate()
        .filter(|(place, (name, _))| {
            *name != "payload" && last.get(name).is_none_or(|last| last == place)
        })
        .filter(|(_, (name, _))| {
            foreign += usize::from(!is_field(name));
            foreign <= FOREIGN_MAX || is_field(name)
        })
        .map(|(_, (name, value))| (name.to_owned(), value.clone().into_owned()))
        .collect()
}

/// What the value should have been, unless it is.
fn broken(rule: Rule, value: &Value<'_>) -> Option<String> {
    let is_text =
        |max| value.as_str().is_some_and(|text| (1..=max).contains(&text.chars().count()));
    let (is_kept, wanted) = match rule {
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
    if is_kept { None } else { Some(wanted) }
}

/// An integer as JSON Schema has it: `1.0` is one. The very large ones are cut to fit.
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

/// Whether `text` looks like `form`, in which `0` stands for any digit.
fn is_form(text: &str, form: &str) -> bool {
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}
