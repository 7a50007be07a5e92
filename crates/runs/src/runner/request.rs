//! Run requests: parsing, validation, and the intent fingerprint.

use admit_core::json::{self, Limits, Object, Value};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::identity;
use super::reason::{RefusalCode, RefusedRequest};
use crate::id_format::is_hex;

/// Maximum size of a request in bytes.
pub const BYTES_MAX: usize = 256 * 1024;

/// Maximum scenarios of a set, and outputs of a request.
const LIST_MAX: usize = 256;

/// Maximum characters of a name.
const NAME_CHARS_MAX: usize = 256;

/// Maximum characters of notes.
const NOTES_CHARS_MAX: usize = 4_000;

/// Allowed members of a request.
const MEMBERS: [&str; 12] = [
    "run_equivalence_key",
    "manifest_fingerprint",
    "parameter_hash",
    "seed",
    "scenario",
    "window",
    "request_id",
    "requested_strategy",
    "output_ids",
    "engine_run_root",
    "notes",
    "invoker",
];

/// Source of the pack of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Chosen by the runner.
    #[default]
    Auto,
    /// Always invoke an engine.
    ForceInvoke,
    /// Always use the existing pack.
    ForceReuse,
}

impl Strategy {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Auto, Self::ForceInvoke, Self::ForceReuse];

    /// Its name on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "AUTO",
            Self::ForceInvoke => "FORCE_INVOKE",
            Self::ForceReuse => "FORCE_REUSE",
        }
    }
}

/// One scenario, or a set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A single scenario.
    Id(String),
    /// Several, sorted and deduplicated.
    Set(Vec<String>),
}

impl Scenario {
    /// The id in events and facts.
    pub fn id(&self) -> String {
        match self {
            Self::Id(id) => id.clone(),
            Self::Set(scenarios) => identity::scenario_set_id(scenarios),
        }
    }
}

/// Time window of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start, in UTC.
    pub start: String,
    /// End, in UTC.
    pub end: String,
    /// Time zone of its days.
    pub tz: String,
}

/// A valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// Requests with the same key are for the same run.
    pub run_equivalence_key: String,
    /// 64 hex digits.
    pub manifest_fingerprint: String,
    /// 64 hex digits.
    pub parameter_hash: String,
    /// The seed.
    pub seed: u64,
    /// The scenario.
    pub scenario: Scenario,
    /// The time window.
    pub window: Window,
    /// Source of the pack.
    pub strategy: Strategy,
    /// The outputs; empty is those of the configured mode.
    pub output_ids: Vec<String>,
    /// Location of the pack.
    pub engine_run_root: Option<String>,
    text: String,
}

impl RunRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// `RUN_REQUEST_INVALID` with the reason.
    pub fn read(body: &[u8]) -> Result<Self, RefusedRequest> {
        let limits = Limits { bytes_max: BYTES_MAX, ..Limits::default() };
        let value = json::parse(body, &limits)
            .map_err(|error| invalid(format!("the request is not JSON: {error}")))?;
        let request = value.as_object().ok_or_else(|| invalid("the request must be an object"))?;
        if let Some(key) = request.repeated_key() {
            return Err(invalid(format!("duplicate member {key}")));
        }
        if let Some((name, _)) = request.iter().find(|(name, _)| !MEMBERS.contains(name)) {
            return Err(invalid(format!("unknown member {name}")));
        }
        let hash = |name: &str| {
            let found = text(request, name)?.filter(|text| is_hex(text, 64));
            found.ok_or_else(|| invalid(format!("{name} must be 64 lower hex digits")))
        };
        let key = name_member(request, "run_equivalence_key")?;
        let key = key.ok_or_else(|| invalid("run_equivalence_key is missing"))?;
        let seed = request.get("seed").and_then(Value::as_u64);
        for (name, chars_max) in [
            ("request_id", NAME_CHARS_MAX),
            ("invoker", NAME_CHARS_MAX),
            ("notes", NOTES_CHARS_MAX),
        ] {
            if text(request, name)?.is_some_and(|text| text.chars().count() > chars_max) {
                return Err(invalid(format!("{name} has more than {chars_max} characters")));
            }
        }
        let mut text_bytes = Vec::new();
        json::write_object(request, &mut text_bytes);
        Ok(Self {
            run_equivalence_key: key,
            manifest_fingerprint: hash("manifest_fingerprint")?,
            parameter_hash: hash("parameter_hash")?,
            seed: seed.ok_or_else(|| invalid("seed must be an integer from 0 to 2^64-1"))?,
            scenario: scenario(request)?,
            window: window(request)?,
            strategy: strategy(request)?,
            output_ids: names(request.get("output_ids"), "output_ids")?,
            engine_run_root: text(request, "engine_run_root")?.filter(|root| !root.is_empty()),
            text: String::from_utf8(text_bytes).map_err(|error| invalid(error.to_string()))?,
        })
    }

    /// The request as stored.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Hash of the requested world and window; equal for equivalent requests.
    pub fn intent_fingerprint(&self) -> String {
        let (id, set) = match &self.scenario {
            Scenario::Id(id) => (Value::from(id), Value::Null),
            Scenario::Set(scenarios) => {
                (Value::Null, scenarios.iter().map(String::as_str).collect())
            }
        };
        identity::spaced_hash(Object::from_iter([
            ("manifest_fingerprint", Value::from(&self.manifest_fingerprint)),
            ("parameter_hash", (&self.parameter_hash).into()),
            ("seed", self.seed.into()),
            ("scenario_id", id),
            ("scenario_set", set),
            ("window_start_utc", (&self.window.start).into()),
            ("window_end_utc", (&self.window.end).into()),
            ("window_tz", (&self.window.tz).into()),
        ]))
    }
}

fn scenario(request: &Object<'_>) -> Result<Scenario, RefusedRequest> {
    let wrong = || invalid("scenario must have exactly one of scenario_id and scenario_set");
    let scenario = request.get("scenario").and_then(Value::as_object).ok_or_else(wrong)?;
    if scenario.iter().any(|(name, _)| !matches!(name, "scenario_id" | "scenario_set")) {
        return Err(wrong());
    }
    let id = text(scenario, "scenario_id")?;
    if id.as_ref().is_some_and(|id| !is_plain(id)) {
        return Err(not_plain("scenario_id"));
    }
    let mut set = names(scenario.get("scenario_set"), "scenario_set")?;
    match (id, set.is_empty()) {
        (Some(id), true) => Ok(Scenario::Id(id)),
        (None, false) => {
            set.sort_unstable();
            set.dedup();
            Ok(Scenario::Set(set))
        }
        _ => Err(wrong()),
    }
}

fn window(request: &Object<'_>) -> Result<Window, RefusedRequest> {
    let window = request.get("window").and_then(Value::as_object);
    let window = window.ok_or_else(|| invalid("window must be an object"))?;
    let at = |name: &str| {
        let found = text(window, name)?.and_then(|text| text.parse::<Timestamp>().ok());
        found.ok_or_else(|| invalid(format!("{name} must be a time with a UTC offset")))
    };
    let (start, end) = (at("window_start_utc")?, at("window_end_utc")?);
    if start >= end {
        return Err(invalid("window_start_utc must be before window_end_utc"));
    }
    let tz = name_member(window, "window_tz")?.ok_or_else(|| invalid("window_tz is missing"))?;
    if TimeZone::get(&tz).is_err() {
        return Err(invalid(format!(
            "{tz:?} is not a known time zone; expected a name such as UTC or Europe/Malta"
        )));
    }
    if let Some((name, _)) = window
        .iter()
        .find(|(name, _)| !matches!(*name, "window_start_utc" | "window_end_utc" | "window_tz"))
    {
        return Err(invalid(format!("unknown member window.{name}")));
    }
    Ok(Window { start: iso(start), end: iso(end), tz })
}

/// Time in UTC, with six fractional digits if there is a fraction, as hashed in the intent.
fn iso(at: Timestamp) -> String {
    let has_fraction = at.subsec_nanosecond() / 1_000 != 0;
    let form = if has_fraction { "%Y-%m-%dT%H:%M:%S.%6f+00:00" } else { "%Y-%m-%dT%H:%M:%S+00:00" };
    at.strftime(form).to_string()
}

fn strategy(request: &Object<'_>) -> Result<Strategy, RefusedRequest> {
    let Some(word) = text(request, "requested_strategy")? else { return Ok(Strategy::default()) };
    let found = Strategy::ALL.into_iter().find(|strategy| strategy.word() == word);
    found.ok_or_else(|| invalid("requested_strategy must be AUTO, FORCE_INVOKE or FORCE_REUSE"))
}

/// A string member; `None` if missing or null.
fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, RefusedRequest> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone().into_owned())),
        Some(_) => Err(invalid(format!("{name} must be a string"))),
    }
}

/// A member that is a valid name.
fn name_member(object: &Object<'_>, name: &str) -> Result<Option<String>, RefusedRequest> {
    let Some(text) = text(object, name)? else { return Ok(None) };
    if is_name(&text) { Ok(Some(text)) } else { Err(invalid_name(name)) }
}

fn names(value: Option<&Value<'_>>, name: &str) -> Result<Vec<String>, RefusedRequest> {
    let elements = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(elements)) if elements.len() <= LIST_MAX => elements,
        Some(_) => {
            return Err(invalid(format!("{name} must be a list of at most {LIST_MAX} names")));
        }
    };
    elements
        .iter()
        .map(|element| {
            let plain = element.as_str().filter(|text| is_plain(text));
            plain.map(str::to_owned).ok_or_else(|| not_plain(name))
        })
        .collect()
}

fn is_name(text: &str) -> bool {
    let is_plain = text.chars().all(|c| !c.is_control());
    !text.trim().is_empty() && is_plain && text.chars().count() <= NAME_CHARS_MAX
}

/// Whether a text is safe in the path of a file.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.bytes().all(is_plain)
}

fn not_plain(name: &str) -> RefusedRequest {
    invalid(format!("{name} must have 1 to 128 letters, digits, _, - and ."))
}

fn invalid_name(name: &str) -> RefusedRequest {
    invalid(format!("{name} must have 1 to {NAME_CHARS_MAX} characters and no control characters"))
}

fn invalid(detail: impl Into<String>) -> RefusedRequest {
    RefusedRequest::new(RefusalCode::RunRequestInvalid, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../tests/fixtures/vectors.json");

    fn golden() -> String {
        let (mf, ph) = (
            "c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8",
            "56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7",
        );
        format!(
            r#"{{"run_equivalence_key":"parity_demo_1","manifest_fingerprint":"{mf}",
            "parameter_hash":"{ph}","seed":42,"scenario":{{"scenario_id":"baseline_v1"}},
            "window":{{"window_start_utc":"2026-01-01T00:00:00Z",
            "window_end_utc":"2026-01-02T00:00:00Z","window_tz":"UTC"}}}}"#
        )
    }

    #[test]
    fn the_golden_intent_does_not_depend_on_the_format_of_its_window() {
        let vectors = json::parse(VECTORS.as_bytes(), &Limits::default()).unwrap();
        let expected = vectors.pointer("/sr/intent_fingerprint").and_then(Value::as_str).unwrap();
        let formats = [
            golden(),
            golden().replace("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"),
            golden().replace("\"window_tz\"", "\"window_tz\" "),
        ];
        for text in formats {
            let request = RunRequest::read(text.as_bytes()).unwrap();
            assert_eq!(request.intent_fingerprint(), expected);
        }
        let other = golden().replace("00:00:00Z", "00:00:00.5Z");
        let request = RunRequest::read(other.as_bytes()).unwrap();
        assert_eq!(request.window.start, "2026-01-01T00:00:00.500000+00:00");
        assert_ne!(request.intent_fingerprint(), expected);
    }

    #[test]
    fn an_invalid_request_is_refused_with_the_reason() {
        let swap = |from: &str, to: &str| golden().replace(from, to);
        for (text, reason) in [
            ("[]".to_owned(), "object"),
            ("{".to_owned(), "not JSON"),
            (swap("parity_demo_1", ""), "run_equivalence_key"),
            (swap("\"seed\":42", "\"seed\":\"42\""), "seed"),
            (swap("\"seed\":42", "\"seed\":42,\"sede\":1"), "sede"),
            (swap("\"seed\":42", "\"seed\":42,\"seed\":43"), "duplicate member seed"),
            (swap("c8fd", "C8FD"), "manifest_fingerprint"),
            (swap(r#"{"scenario_id":"baseline_v1"}"#, "{}"), "exactly one"),
            (swap("\"baseline_v1\"", "\"baseline_v1\",\"scenario_set\":[\"a\"]"), "exactly one"),
            (swap("\"baseline_v1\"", "\"../../etc\""), "scenario_id"),
            (swap("2026-01-02T00:00:00Z", "2026-01-02T00:00:00"), "offset"),
            (swap("2026-01-02T", "2025-01-02T"), "before"),
            (swap("\"UTC\"", "\"Mars/Olympus\""), "time zone"),
            (swap("\"seed\":42", "\"seed\":42,\"requested_strategy\":\"NOW\""), "AUTO"),
            (swap("\"seed\":42", "\"seed\":42,\"output_ids\":\"x\""), "output_ids"),
        ] {
            let refused = RunRequest::read(text.as_bytes()).unwrap_err();
            assert_eq!(refused.code, RefusalCode::RunRequestInvalid);
            assert!(refused.detail.contains(reason), "{reason}: {}", refused.detail);
        }
    }

    #[test]
    fn a_set_of_scenarios_has_one_id_independent_of_its_order() {
        let set = |list: &str| {
            let text = golden().replace(
                r#"{"scenario_id":"baseline_v1"}"#,
                &format!(r#"{{"scenario_set":{list}}}"#),
            );
            RunRequest::read(text.as_bytes()).unwrap()
        };
        let (one, other) =
            (set(r#"["baseline","stress"]"#), set(r#"["stress","baseline","stress"]"#));
        assert_eq!(one.intent_fingerprint(), other.intent_fingerprint());
        assert_eq!(one.scenario.id(), "scnset_9b4791e078cca7c9");
    }
}
