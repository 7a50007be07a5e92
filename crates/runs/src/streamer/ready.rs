//! Parsing of READY messages. Anything else on the control bus is skipped.

use admit_core::json::{self, Limits, Object, Value};

/// Maximum message size in bytes.
const BYTES_MAX: usize = 1 << 20;

/// READY signal: the runner announces that a run may be streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Identical in every copy of this READY; 64 hex digits.
    pub message_id: String,
    /// The runner's id of the run.
    pub run_id: String,
    /// The platform run it belongs to.
    pub platform_run_id: String,
    /// The scenario run.
    pub scenario_run_id: String,
    /// Reference of the run's facts.
    pub facts_view_ref: String,
    /// Hash of the evidence bundle, as announced.
    pub bundle_hash: String,
    /// World pin.
    pub manifest_fingerprint: String,
    /// World pin.
    pub parameter_hash: String,
    /// World pin.
    pub scenario_id: String,
    /// The pack, if READY names it.
    pub pack: PackRef,
}

/// Reference of a pack in READY or the facts. All fields are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackRef {
    /// The pack's id.
    pub oracle_pack_id: Option<String>,
    /// The pack's folder.
    pub engine_run_root: Option<String>,
    /// Location of its stream views, if outside the pack.
    pub stream_view_root: Option<String>,
}

impl Ready {
    /// Parses a message of the control bus: the runner's envelope around a READY signal, or a bare
    /// signal. `None` for anything else, and for a READY of another topic.
    pub fn read(topic: &str, message: &[u8]) -> Option<Self> {
        let limits = Limits { bytes_max: BYTES_MAX, ..Limits::default() };
        let value = json::parse(message, &limits).ok()?;
        let outer = value.as_object()?;
        let Some(inner) = outer.get("payload") else { return Self::of(outer) };
        let field = |name| outer.get(name).and_then(Value::as_str);
        if field("topic").is_some_and(|named| named != topic) {
            return None;
        }
        let kind = outer.get("attributes").and_then(|a| a.get("kind")).and_then(Value::as_str);
        if kind.is_some_and(|kind| !matches!(kind, "READY" | "READY_REEMIT")) {
            return None;
        }
        let ready = Self::of(inner.as_object()?)?;
        let is_same = field("message_id").is_none_or(|id| id == ready.message_id);
        is_same.then_some(ready)
    }

    fn of(signal: &Object<'_>) -> Option<Self> {
        let text = |name: &str| {
            let text = signal.get(name)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let hex = |name: &str, digits| text(name).filter(|text| is_hex(text, digits));
        // Required although unused: a signal without it is not a valid READY.
        hex("run_config_digest", 64)?;
        Some(Self {
            message_id: hex("message_id", 64)?,
            run_id: hex("run_id", 32)?,
            platform_run_id: text("platform_run_id").filter(|run| is_platform_run(run))?,
            scenario_run_id: hex("scenario_run_id", 32)?,
            facts_view_ref: text("facts_view_ref")?,
            bundle_hash: hex("bundle_hash", 64)?,
            manifest_fingerprint: hex("manifest_fingerprint", 64)?,
            parameter_hash: hex("parameter_hash", 64)?,
            scenario_id: text("scenario_id")?,
            pack: PackRef::of(signal),
        })
    }
}

impl PackRef {
    pub(super) fn of(object: &Object<'_>) -> Self {
        let within = object.get("oracle_pack_ref");
        let text = |name: &str| {
            let text = within?.get(name)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        Self {
            oracle_pack_id: text("oracle_pack_id"),
            engine_run_root: text("engine_run_root"),
            stream_view_root: text("stream_view_root"),
        }
    }
}

/// Whether the text is so many lower-case hex digits.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether the text is like `platform_20260212T085637Z`, which is also a safe folder name.
pub(super) fn is_platform_run(text: &str) -> bool {
    let Some(stamp) = text.strip_prefix("platform_") else { return false };
    let mut pattern = "ddddddddTddddddZ".bytes();
    stamp.len() == 16
        && stamp.bytes().all(|byte| match pattern.next() {
            Some(b'd') => byte.is_ascii_digit(),
            other => other == Some(byte),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "fp.bus.control.v1";

    fn signal() -> String {
        let (h64, h32) = ("a".repeat(64), "b".repeat(32));
        format!(
            "{{\"run_id\":\"{h32}\",\"platform_run_id\":\"platform_20260212T085637Z\",\
             \"scenario_run_id\":\"{h32}\",\"facts_view_ref\":\"x/sr/run_facts_view/1.json\",\
             \"bundle_hash\":\"{h64}\",\"message_id\":\"{h64}\",\"run_config_digest\":\"{h64}\",\
             \"manifest_fingerprint\":\"{h64}\",\"parameter_hash\":\"{h64}\",\"scenario_id\":\"s\",\
             \"oracle_pack_ref\":{{\"engine_run_root\":\"packs/a\"}}}}"
        )
    }

    fn wrapped(topic: &str, kind: &str, id: &str) -> String {
        format!(
            "{{\"topic\":\"{topic}\",\"message_id\":\"{id}\",\"attributes\":{{\"kind\":\"{kind}\"}},\
             \"payload\":{}}}",
            signal()
        )
    }

    #[test]
    fn a_ready_is_read_bare_and_in_its_envelope() {
        let id = "a".repeat(64);
        let bare = Ready::read(TOPIC, signal().as_bytes()).expect("a ready");
        assert_eq!(bare.pack.engine_run_root.as_deref(), Some("packs/a"));
        for kind in ["READY", "READY_REEMIT"] {
            let message = wrapped(TOPIC, kind, &id);
            assert_eq!(Ready::read(TOPIC, message.as_bytes()), Some(bare.clone()), "{kind}");
        }
    }

    #[test]
    fn other_messages_are_skipped() {
        let id = "a".repeat(64);
        let mut invalid = vec![
            "not json".to_owned(),
            "[]".to_owned(),
            "{}".to_owned(),
            wrapped("fp.bus.other.v1", "READY", &id),
            wrapped(TOPIC, "TERMINAL_REEMIT", &id),
            wrapped(TOPIC, "READY", &"c".repeat(64)),
            signal().replace("platform_20260212T085637Z", "../../etc"),
            signal().replace(&id, "A"),
        ];
        for name in ["facts_view_ref", "scenario_id", "bundle_hash", "run_config_digest"] {
            invalid.push(signal().replace(name, "other"));
        }
        for message in invalid {
            assert_eq!(Ready::read(TOPIC, message.as_bytes()), None, "{message}");
        }
    }

    #[test]
    fn a_platform_run_has_one_form() {
        assert!(is_platform_run("platform_20260212T085637Z"));
        for invalid in ["platform_20260212T085637", "platform_2026021xT085637Z", "x", "platform_"] {
            assert!(!is_platform_run(invalid), "{invalid}");
        }
    }
}
