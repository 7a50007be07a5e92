//! Gate map: the gates required by each output, and how their digests are checked. The runner's part of
//! the catalogue.

use std::collections::BTreeSet;

use admit_core::hash::sha256_hex;
use admit_core::json::{self, Form, Limits, Object, Value};

use super::reason::Reason;
use crate::catalogue::{Catalogue, CatalogueError};

/// Maximum size of a catalogue in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Method of computing the digest of a gate's bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMethod {
    /// Over the bytes of all files except the flag, in path order.
    Bundle,
    /// Over the bytes of the files listed in the index, in path order.
    Listed,
    /// Over the hex digests of those files, in path order.
    ListedDigests,
}

impl DigestMethod {
    const ALL: [Self; 3] = [Self::Bundle, Self::Listed, Self::ListedDigests];

    /// Its name in the catalogue.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bundle => "sha256_bundle_digest",
            Self::Listed => "sha256_index_json_ascii_lex_raw_bytes",
            Self::ListedDigests => "sha256_member_digest_concat",
        }
    }
}

/// Rule for checking a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRule {
    /// The gate.
    pub gate_id: String,
    /// Folder of its bundle, with the placeholder `{manifest_fingerprint}`.
    pub folder: String,
    /// Name of the digest in its flag.
    pub flag_field: String,
    /// Method of the digest.
    pub method: DigestMethod,
    /// The index file, if the method needs one.
    pub index: Option<String>,
    /// Whether paths in the index are relative to the pack instead of the bundle.
    pub is_from_pack: bool,
    /// Gates that must have passed before.
    pub requires: Vec<String>,
}

/// Location of an output, and its gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRule {
    /// The output.
    pub output_id: String,
    /// Its files, with placeholders for pins and one `*` in the last part.
    pub path: String,
    /// The gate that authorises it.
    pub gate: String,
    /// Further gates that must have passed before it may be read.
    pub read_requires_gates: Vec<String>,
}

/// Rules of all outputs and gates, with a digest of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateMap {
    outputs: Vec<OutputRule>,
    gates: Vec<GateRule>,
    /// The streamer's part, with the modes.
    pub catalogue: Catalogue,
    /// Digest of the content, used in plans and facts.
    pub content_digest: String,
}

impl GateMap {
    /// Reads a catalogue.
    ///
    /// # Errors
    /// With the first problem.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let catalogue = Catalogue::parse(text)?;
        let limits = Limits { bytes_max: BYTES_MAX, ..Limits::default() };
        let value = json::parse(text.as_bytes(), &limits)
            .map_err(|error| CatalogueError(error.to_string()))?;
        let canonical = json::canonical(&value, Form::Ascii)
            .map_err(|error| CatalogueError(error.to_string()))?;
        let objects = |name: &str| {
            let listed = value.get(name).and_then(Value::as_array).unwrap_or_default();
            listed.iter().filter_map(Value::as_object).collect::<Vec<_>>()
        };
        let outputs = objects("outputs").into_iter().map(output).collect::<Result<_, _>>()?;
        let gates: Vec<GateRule> =
            objects("gates").into_iter().map(gate).collect::<Result<_, _>>()?;
        let mut ids: Vec<&str> = gates.iter().map(|gate| &*gate.gate_id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CatalogueError(format!("duplicate gate {}", pair[0])));
        }
        Ok(Self { outputs, gates, catalogue, content_digest: sha256_hex(&canonical) })
    }

    /// Looks up an output.
    pub fn output(&self, output_id: &str) -> Option<&OutputRule> {
        self.outputs.iter().find(|output| output.output_id == output_id)
    }

    /// Looks up a gate.
    pub fn gate(&self, gate_id: &str) -> Option<&GateRule> {
        self.gates.iter().find(|gate| gate.gate_id == gate_id)
    }

    /// Returns all gates that must have passed before these outputs may be read, sorted by name.
    ///
    /// # Errors
    /// With the name of an unknown output or gate.
    pub fn required_gates(&self, outputs: &[String]) -> Result<Vec<String>, (Reason, String)> {
        let mut pending = Vec::new();
        for output_id in outputs {
            let output = self.output(output_id);
            let output = output.ok_or((Reason::UnknownOutputId, output_id.clone()))?;
            pending.push(output.gate.clone());
            pending.extend(output.read_requires_gates.iter().cloned());
        }
        let mut found = BTreeSet::new();
        while let Some(gate_id) = pending.pop() {
            let gate = self.gate(&gate_id).ok_or((Reason::UnknownGateId, gate_id.clone()))?;
            if found.insert(gate_id) {
                pending.extend(gate.requires.iter().cloned());
            }
        }
        Ok(found.into_iter().collect())
    }
}

fn output(object: &Object<'_>) -> Result<OutputRule, CatalogueError> {
    Ok(OutputRule {
        output_id: text(object, "output_id")?,
        path: text(object, "path")?,
        gate: text(object, "gate")?,
        read_requires_gates: texts(object, "read_requires_gates")?,
    })
}

fn gate(object: &Object<'_>) -> Result<GateRule, CatalogueError> {
    let gate_id = text(object, "gate_id")?;
    let word = text(object, "digest")?;
    let method = DigestMethod::ALL.into_iter().find(|method| method.word() == word);
    let unknown = || CatalogueError(format!("gate {gate_id}: unknown digest method {word}"));
    let method = method.ok_or_else(unknown)?;
    let index = object.get("index").and_then(Value::as_str).map(str::to_owned);
    if index.is_none() && method != DigestMethod::Bundle {
        return Err(CatalogueError(format!(
            "gate {gate_id}: digest method {word} requires an index"
        )));
    }
    Ok(GateRule {
        folder: text(object, "folder")?,
        flag_field: text(object, "flag_field")?,
        method,
        index,
        is_from_pack: object.get("index_paths_from").and_then(Value::as_str) == Some("pack"),
        requires: texts(object, "requires")?,
        gate_id,
    })
}

fn text(object: &Object<'_>, name: &str) -> Result<String, CatalogueError> {
    let found = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    found
        .map(str::to_owned)
        .ok_or_else(|| CatalogueError(format!("{name} must be a non-empty string")))
}

fn texts(object: &Object<'_>, name: &str) -> Result<Vec<String>, CatalogueError> {
    let wrong = || CatalogueError(format!("{name} must be a list of strings"));
    match object.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(listed)) => {
            let texts: Option<_> =
                listed.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::SHIPPED;

    fn required(outputs: &[&str]) -> Result<Vec<String>, (Reason, String)> {
        let outputs: Vec<String> = outputs.iter().map(|&output| output.to_owned()).collect();
        GateMap::parse(SHIPPED).expect("the shipped catalogue").required_gates(&outputs)
    }

    #[test]
    fn every_gate_upstream_must_have_passed() {
        let all = ["1A", "1B", "2A", "2B", "3A", "3B", "5A", "5B", "6A", "6B"];
        assert_eq!(required(&["s3_event_stream_with_fraud_6B"]).unwrap(), all);
        assert_eq!(required(&["arrival_events_5B", "s1_arrival_entities_6B"]).unwrap(), all);
        assert_eq!(
            required(&["arrival_events_5B"]).unwrap(),
            ["1A", "1B", "2A", "2B", "3A", "3B", "5A", "5B"]
        );
    }

    #[test]
    fn unknown_outputs_and_gates_are_named() {
        let unknown = (Reason::UnknownOutputId, "nothing".to_owned());
        assert_eq!(required(&["arrival_events_5B", "nothing"]), Err(unknown));
        let text = SHIPPED.replacen("\"requires\": [\"1A\"", "\"requires\": [\"9Z\"", 1);
        let map = GateMap::parse(&text).expect("valid");
        let unknown = (Reason::UnknownGateId, "9Z".to_owned());
        assert_eq!(map.required_gates(&["arrival_events_5B".to_owned()]), Err(unknown));
        assert_ne!(map.content_digest, GateMap::parse(SHIPPED).expect("valid").content_digest);
    }

    #[test]
    fn a_gate_without_a_valid_check_is_refused() {
        for (from, to) in [
            ("sha256_member_digest_concat", "md5"),
            ("\"index\": \"index.json\", \"index_paths_from\": \"pack\", ", ""),
            ("\"gate_id\": \"1B\"", "\"gate_id\": \"1A\""),
        ] {
            assert!(GateMap::parse(&SHIPPED.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
