//! Catalogue of pack outputs: their primary keys, modes and gates. A default is shipped with this crate;
//! the config can replace it.

use admit_core::json::{self, Limits, Object, Value};

/// The shipped default catalogue.
pub const SHIPPED: &str = include_str!("../data/catalogue.json");

/// Maximum size of a catalogue in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Outputs and gates of packs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    outputs: Vec<Output>,
    gates: Vec<PackGate>,
}

/// Role of an output. Traffic is streamed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputRole {
    /// Events to decide about.
    Traffic,
    /// Context of decisions.
    Context,
}

/// One output of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name, which is also the event type of its rows.
    pub output_id: String,
    /// Its role.
    pub role: OutputRole,
    /// The modes that stream it.
    pub modes: Vec<String>,
    /// Primary key columns, in the order they are hashed.
    pub primary_key: Vec<String>,
    /// Ordering column: rows with the same value are sent serially.
    pub order_key: String,
    /// The gate that must have passed.
    pub gate: String,
}

/// One gate of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackGate {
    /// Its name.
    pub gate_id: String,
    /// Folder of its bundle, with the placeholder `{manifest_fingerprint}`.
    pub folder: String,
}

/// Error in a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid catalogue: {0}")]
pub struct CatalogueError(pub(crate) String);

impl Catalogue {
    /// Parses the shipped catalogue.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED).expect("the shipped catalogue is valid (tested)")
    }

    /// Parses a catalogue.
    ///
    /// # Errors
    /// With the first problem.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let limits = Limits { bytes_max: BYTES_MAX, ..Limits::default() };
        let value = json::parse(text.as_bytes(), &limits)
            .map_err(|error| CatalogueError(error.to_string()))?;
        let outputs: Vec<Output> =
            list(&value, "outputs")?.map(output).collect::<Result<_, _>>()?;
        let gates: Vec<PackGate> = list(&value, "gates")?.map(gate).collect::<Result<_, _>>()?;
        for output in &outputs {
            let count = outputs.iter().filter(|other| other.output_id == output.output_id).count();
            if count > 1 {
                return Err(CatalogueError(format!("duplicate output {}", output.output_id)));
            }
            if !gates.iter().any(|gate| gate.gate_id == output.gate) {
                let (id, gate) = (&output.output_id, &output.gate);
                return Err(CatalogueError(format!("output {id} references unknown gate {gate}")));
            }
        }
        Ok(Self { outputs, gates })
    }

    /// Looks up an output.
    pub fn output(&self, output_id: &str) -> Option<&Output> {
        self.outputs.iter().find(|output| output.output_id == output_id)
    }

    /// Outputs of a mode, traffic first.
    pub fn of_mode(&self, mode: &str) -> Vec<&Output> {
        let in_mode = |output: &&Output| output.modes.iter().any(|word| word == mode);
        let mut outputs: Vec<&Output> = self.outputs.iter().filter(in_mode).collect();
        outputs.sort_by_key(|output| output.role);
        outputs
    }

    /// Path of a gate's flag in a pack of this world; `None` for an unknown gate.
    pub fn flag(&self, gate_id: &str, manifest_fingerprint: &str) -> Option<String> {
        let gate = self.gates.iter().find(|gate| gate.gate_id == gate_id)?;
        let folder = gate.folder.replace("{manifest_fingerprint}", manifest_fingerprint);
        Some(format!("{folder}/_passed.flag"))
    }
}

fn list<'v>(
    value: &'v Value<'_>,
    name: &str,
) -> Result<impl Iterator<Item = &'v Value<'v>>, CatalogueError> {
    let listed = value.get(name).and_then(Value::as_array);
    listed.map(<[_]>::iter).ok_or_else(|| CatalogueError(format!("{name} must be a list")))
}

fn output(value: &Value<'_>) -> Result<Output, CatalogueError> {
    let object = value.as_object().ok_or_else(|| must_be("outputs", "a list of objects"))?;
    let role = match text(object, "role")?.as_str() {
        "traffic" => OutputRole::Traffic,
        "context" => OutputRole::Context,
        _ => return Err(must_be("role", "traffic or context")),
    };
    let output_id = text(object, "output_id")?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !output_id.bytes().all(is_name) {
        return Err(must_be("output_id", "letters, digits, _ and -"));
    }
    Ok(Output {
        output_id,
        role,
        modes: texts(object, "modes")?,
        primary_key: texts(object, "primary_key")?,
        order_key: text(object, "order_key")?,
        gate: text(object, "gate")?,
    })
}

fn gate(value: &Value<'_>) -> Result<PackGate, CatalogueError> {
    let object = value.as_object().ok_or_else(|| must_be("gates", "a list of objects"))?;
    Ok(PackGate { gate_id: text(object, "gate_id")?, folder: text(object, "folder")? })
}

fn text(object: &Object<'_>, name: &str) -> Result<String, CatalogueError> {
    let found = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    found.map(str::to_owned).ok_or_else(|| must_be(name, "a non-empty string"))
}

fn texts(object: &Object<'_>, name: &str) -> Result<Vec<String>, CatalogueError> {
    let listed = object.get(name).and_then(Value::as_array).unwrap_or_default();
    let texts: Option<Vec<String>> =
        listed.iter().map(|item| item.as_str().map(str::to_owned)).collect();
    texts
        .filter(|texts| !texts.is_empty())
        .ok_or_else(|| must_be(name, "a non-empty list of strings"))
}

fn must_be(name: &str, expected: &str) -> CatalogueError {
    CatalogueError(format!("{name} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(mode: &str) -> Vec<String> {
        let catalogue = Catalogue::shipped();
        catalogue.of_mode(mode).iter().map(|output| output.output_id.clone()).collect()
    }

    #[test]
    fn the_shipped_catalogue_has_both_modes_with_traffic_first() {
        let fraud = ["s3_event_stream_with_fraud_6B", "arrival_events_5B"];
        assert_eq!(ids("fraud")[..2], fraud);
        assert_eq!(ids("fraud").len(), 4);
        assert_eq!(ids("baseline")[0], "s2_event_stream_baseline_6B");
        assert_eq!(ids("baseline").len(), 4);
        assert!(ids("other").is_empty());
    }

    #[test]
    fn a_flag_is_in_the_bundle_of_its_world() {
        let flag = Catalogue::shipped().flag("5B", "c8fd").expect("a gate");
        assert_eq!(flag, "data/layer2/5B/validation/manifest_fingerprint=c8fd/_passed.flag");
    }

    #[test]
    fn a_catalogue_that_contradicts_itself_is_refused() {
        let twice = SHIPPED.replacen("s2_event_stream_baseline_6B", "arrival_events_5B", 1);
        for (text, reason) in [
            ("[]", "outputs must be a list"),
            (&twice, "duplicate output"),
            (&SHIPPED.replace("\"gate\": \"5B\"", "\"gate\": \"9Z\""), "9Z"),
            (&SHIPPED.replace("\"context\"", "\"other\""), "role"),
        ] {
            let error = Catalogue::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
