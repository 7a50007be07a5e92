//! Encoding of rows as envelopes: canonical bytes, the same for the same row of the same run.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use admit_core::json::{self, Form, Limits, Object, Value};
use bytes::Bytes;

use super::identity::{Stamp, WorldPins, event_id, key_text};
use super::pack::rows::{PackRow, PartReader};
use super::reason::{Reason, RunFailure};
use crate::catalogue::Output;

/// Maximum envelope size in bytes: the default limit of a gate.
pub const ENVELOPE_BYTES_MAX: usize = 1 << 20;

/// Schema version of payloads.
const SCHEMA_VERSION: &str = "v1";

/// Column with the whole payload as JSON.
const PAYLOAD_JSON: &str = "payload_json";

/// Fields common to all envelopes of an output.
#[derive(Clone, Debug)]
pub struct Envelopes {
    /// The output.
    pub output: Output,
    /// The world.
    pub world: WorldPins,
    /// The engine's id of the run.
    pub engine_run_id: String,
    /// The platform run.
    pub platform_run_id: String,
    /// The scenario run.
    pub scenario_run_id: String,
    /// The producer.
    pub producer: String,
    /// The pack key, used as trace id.
    pub pack_key: String,
    /// The release that made the pack, if known.
    pub engine_release: Option<String>,
}

/// An encoded envelope with its time and ordering shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedEnvelope {
    /// The request body.
    pub body: Bytes,
    /// Timestamp of the row.
    pub stamp: Stamp,
    /// Hash of the order key: envelopes with the same value must be sent serially.
    pub shard: u64,
}

/// Columns of a part file, sorted as in the payload.
#[derive(Clone, Debug)]
pub struct Layout {
    columns: Vec<(String, usize)>,
}

impl Layout {
    /// The columns of `part`.
    pub fn of(part: &PartReader) -> Self {
        let mut columns: Vec<(String, usize)> =
            part.names().enumerate().map(|(index, name)| (name.to_owned(), index)).collect();
        columns.sort_unstable();
        Self { columns }
    }
}

impl Envelopes {
    /// Encodes a row; `number` is for errors.
    ///
    /// # Errors
    /// When the row lacks a key or a time, belongs to another world, or has invalid JSON.
    pub fn envelope(
        &self,
        layout: &Layout,
        number: u64,
        row: &PackRow<'_>,
    ) -> Result<PreparedEnvelope, RunFailure> {
        let mut cells = Object::new();
        for (name, column) in &layout.columns {
            let value = row.value(*column, number).map_err(|error| {
                RunFailure::caused(Reason::StreamFailed, format!("row {number}"), error)
            })?;
            cells.push(name.as_str(), value);
        }
        let whole = match cells.remove(PAYLOAD_JSON) {
            Some(Value::String(text)) => Some(text),
            Some(Value::Null) | None => None,
            Some(_) => return Err(unusable(number, "payload_json is not a string")),
        };
        let payload_object =
            whole.as_ref().map(|text| payload(text.as_bytes(), number)).transpose()?;
        self.build(&cells, payload_object.as_ref(), number)
    }

    /// Key columns are used even if the row has its own payload JSON.
    fn build(
        &self,
        cells: &Object<'_>,
        payload_object: Option<&Object<'_>>,
        number: u64,
    ) -> Result<PreparedEnvelope, RunFailure> {
        let get = |name: &str| {
            let cell = cells.get(name).filter(|value| !value.is_null());
            cell.or_else(|| payload_object?.get(name).filter(|value| !value.is_null()))
        };
        self.same_world(&get, number)?;
        let mut keys = Vec::with_capacity(self.output.primary_key.len());
        for name in &self.output.primary_key {
            let Some(text) = get(name).and_then(key_text) else {
                let detail =
                    format!("row {number} has no {name}, which is part of its primary key");
                return Err(RunFailure::new(Reason::PrimaryKeyMissing, detail));
            };
            keys.push(text);
        }
        let ts = get("ts_utc").and_then(Value::as_str);
        let ts = ts.ok_or_else(|| unusable(number, "ts_utc is missing or not a string"))?;
        let stamp = Stamp::read(ts).ok_or_else(|| unusable(number, "ts_utc is not a time"))?;
        let mut shard = DefaultHasher::new();
        get(&self.output.order_key).and_then(key_text).hash(&mut shard);
        let id = event_id(&self.output.output_id, &keys, &self.world);
        let body = self.encode(&id, &stamp, payload_object.unwrap_or(cells));
        if body.len() > ENVELOPE_BYTES_MAX {
            return Err(unusable(number, "the envelope would have more than 1 MiB"));
        }
        Ok(PreparedEnvelope { body: body.into(), stamp, shard: shard.finish() })
    }

    /// Pins in a row must equal those of the world.
    fn same_world<'v>(
        &self,
        get: &dyn Fn(&str) -> Option<&'v Value<'v>>,
        number: u64,
    ) -> Result<(), RunFailure> {
        let seed = self.world.seed.to_string();
        for (name, ours) in [
            ("manifest_fingerprint", &self.world.manifest_fingerprint),
            ("parameter_hash", &self.world.parameter_hash),
            ("scenario_id", &self.world.scenario_id),
            ("seed", &seed),
        ] {
            if get(name).is_some_and(|value| key_text(value).as_ref() != Some(ours)) {
                let detail = format!("row {number}: {name} differs from that of the run");
                return Err(RunFailure::new(Reason::WorldKeyMismatch, detail));
            }
        }
        Ok(())
    }

    /// Writes the fields in canonical order, so that no sorting is needed.
    fn encode(&self, event_id: &str, stamp: &Stamp, payload: &Object<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut before = b'{';
        let mut field = |name: &str, value: &Value<'_>| {
            out.push(before);
            before = b',';
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            json::canonical_into(value, Form::Ascii, &mut out)
                .expect("cells are finite and parsed json always is");
        };
        field("event_id", &event_id.into());
        field("event_type", &self.output.output_id.as_str().into());
        field("manifest_fingerprint", &self.world.manifest_fingerprint.as_str().into());
        field("parameter_hash", &self.world.parameter_hash.as_str().into());
        field("payload", &Value::Object(payload.clone()));
        field("platform_run_id", &self.platform_run_id.as_str().into());
        field("producer", &self.producer.as_str().into());
        field("run_id", &self.engine_run_id.as_str().into());
        field("scenario_id", &self.world.scenario_id.as_str().into());
        field("scenario_run_id", &self.scenario_run_id.as_str().into());
        field("schema_version", &SCHEMA_VERSION.into());
        field("seed", &self.world.seed.into());
        if let Some(release) = &self.engine_release {
            field("span_id", &release.as_str().into());
        }
        field("trace_id", &self.pack_key.as_str().into());
        field("ts_utc", &stamp.text.as_str().into());
        out.push(b'}');
        out
    }
}

fn payload(text: &[u8], number: u64) -> Result<Object<'_>, RunFailure> {
    let value = json::parse(text, &Limits::default()).map_err(|error| {
        RunFailure::caused(Reason::StreamFailed, format!("row {number}: payload_json"), error)
    })?;
    let Value::Object(object) = value else {
        return Err(unusable(number, "payload_json is not an object"));
    };
    Ok(object)
}

fn unusable(number: u64, what: &str) -> RunFailure {
    RunFailure::new(Reason::StreamFailed, format!("row {number}: {what}"))
}
