//! Derived identifiers of the streamer, and the time format.

use admit_core::hash::sha256_hex;
use admit_core::json::Value;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// World of a pack: the pins of all its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldPins {
    /// 64 hex digits.
    pub manifest_fingerprint: String,
    /// 64 hex digits.
    pub parameter_hash: String,
    /// The seed.
    pub seed: u64,
    /// The scenario, as the facts of the run name it.
    pub scenario_id: String,
}

/// Key of a pack without a manifest: the hash of its location as written.
pub fn fallback_pack_key(engine_root: &str) -> String {
    sha256_hex(engine_root.as_bytes())
}

/// The id that a manifest must contain.
pub fn oracle_pack_id(
    world: &WorldPins,
    engine_release: &str,
    catalogue_digest: &str,
    gate_map_digest: &str,
) -> String {
    let WorldPins { manifest_fingerprint, parameter_hash, seed, scenario_id } = world;
    hash_joined(&[
        manifest_fingerprint,
        parameter_hash,
        scenario_id,
        &seed.to_string(),
        engine_release,
        catalogue_digest,
        gate_map_digest,
    ])
}

/// Key of a run's checkpoints: includes the run, so that progress is never shared between runs.
pub fn checkpoint_pack_key(pack_key: &str, platform_run_id: &str, scenario_run_id: &str) -> String {
    hash_joined(&[pack_key, platform_run_id, scenario_run_id])
}

/// Event id of a row: hash of its output, primary key and world.
pub fn event_id(output_id: &str, primary_key: &[String], world: &WorldPins) -> String {
    let seed = world.seed.to_string();
    let mut parts = vec![output_id];
    parts.extend(primary_key.iter().map(String::as_str));
    parts.extend([&*world.manifest_fingerprint, &*world.parameter_hash, &*seed]);
    parts.push(&world.scenario_id);
    hash_joined(&parts)
}

/// Text of a value in a primary key; `None` if it cannot be part of one.
pub fn key_text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone().into_owned()),
        Value::Int(digits) => Some(digits.clone().into_owned()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Float(_) => {
            let mut text = Vec::new();
            admit_core::json::write(value, &mut text);
            String::from_utf8(text).ok()
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn hash_joined(parts: &[&str]) -> String {
    sha256_hex(parts.join("|").as_bytes())
}

/// Timestamp in envelope format, and in microseconds for pacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// With six fractional digits and a Z.
    pub text: String,
    /// Microseconds since the epoch.
    pub micros: i64,
}

impl Stamp {
    /// Parses an ISO 8601 time. Without an offset it is UTC; digits beyond the sixth are truncated.
    pub fn read(text: &str) -> Option<Self> {
        let at = text.parse::<Timestamp>().ok().or_else(|| {
            let plain: DateTime = text.parse().ok()?;
            Some(TimeZone::UTC.to_zoned(plain).ok()?.timestamp())
        })?;
        let written = at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        // Years before 0 have a sign, which envelopes cannot hold.
        let is_plain = written.len() == 27 && written.starts_with(|c: char| c.is_ascii_digit());
        is_plain.then(|| Self { text: written, micros: at.as_microsecond() })
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{self, Limits};

    use super::*;

    const VECTORS: &str = include_str!("../../tests/fixtures/vectors.json");

    fn vectors() -> Value<'static> {
        json::parse(VECTORS.as_bytes(), &Limits::default()).expect("vectors")
    }

    fn text<'v>(value: &'v Value<'_>, pointer: &str) -> &'v str {
        value.pointer(pointer).and_then(Value::as_str).expect(pointer)
    }

    fn world(vectors: &Value<'_>) -> WorldPins {
        WorldPins {
            manifest_fingerprint: text(vectors, "/envelope/manifest_fingerprint").to_owned(),
            parameter_hash: text(vectors, "/envelope/parameter_hash").to_owned(),
            seed: 42,
            scenario_id: text(vectors, "/envelope/scenario_id").to_owned(),
        }
    }

    #[test]
    fn the_golden_identities_hold() {
        let vectors = vectors();
        let pack_key = fallback_pack_key(text(&vectors, "/wsp/engine_root"));
        assert_eq!(pack_key, text(&vectors, "/wsp/pack_key_fallback"));
        let run = text(&vectors, "/wsp/platform_run_id");
        let key = checkpoint_pack_key(&pack_key, run, text(&vectors, "/wsp/scenario_run_id"));
        assert_eq!(key, text(&vectors, "/wsp/checkpoint_pack_key"));
        let world = world(&vectors);
        let keys = ["42", &*world.manifest_fingerprint, "baseline_v1", "1001", "0"];
        let id = event_id("s3_event_stream_with_fraud_6B", &keys.map(str::to_owned), &world);
        assert_eq!(id, text(&vectors, "/event_id"));
    }

    #[test]
    fn a_pack_id_is_derived_from_its_world_and_its_release() {
        let world = world(&vectors());
        let id = oracle_pack_id(&world, "rel-1", "cat", "map");
        let same =
            [&*world.manifest_fingerprint, &*world.parameter_hash, "baseline_v1|42|rel-1|cat|map"];
        assert_eq!(id, sha256_hex(same.join("|").as_bytes()));
    }

    #[test]
    fn key_values_have_the_reference_spelling() {
        let text_of = |value: Value<'_>| key_text(&value);
        assert_eq!(text_of(7.into()).as_deref(), Some("7"));
        assert_eq!(text_of(true.into()).as_deref(), Some("True"));
        assert_eq!(text_of(1.0.into()).as_deref(), Some("1.0"));
        assert_eq!(text_of("x|y".into()).as_deref(), Some("x|y"));
        assert_eq!(text_of(Value::Null), None);
    }

    #[test]
    fn times_get_six_digits_and_a_z() {
        for (from, to) in [
            ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"),
            ("2026-01-01T01:30:00.5+01:30", "2026-01-01T00:00:00.500000Z"),
            ("2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.123456Z"),
            ("2026-01-01T00:00:00.123456", "2026-01-01T00:00:00.123456Z"),
            ("2026-01-01 00:00:00", "2026-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Stamp::read(from).map(|stamp| stamp.text).as_deref(), Some(to), "{from}");
        }
        for wrong in ["", "yesterday", "2026-13-01T00:00:00Z", "-000001-01-01T00:00:00Z", "12"] {
            assert_eq!(Stamp::read(wrong), None, "{wrong}");
        }
        assert_eq!(Stamp::read("1970-01-01T00:00:01.000002Z").map(|s| s.micros), Some(1_000_002));
    }
}
