//! Which gates vouch for which outputs, and how what they say is checked: the runner's half of the
//! catalogue.

use std::collections::BTreeSet;

use admit_core::hash::sha256_hex;
use admit_core::json::{self, Form, Limits, Object, Value};

use super::reason::Reason;
use crate::catalogue::{Catalogue, CatalogueError};

/// Most bytes of a catalogue.
const BYTES_MAX: usize = 1 << 20;

/// How the digest of a gate's bundle is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMethod {
    /// The bytes of every file but the flag, in path order.
    Bundle,
    /// The bytes of the files that the index lists, in path order.
    Listed,
    /// The digests of those files, as texts, in path order.
    ListedDigests,
}

impl DigestMethod {
    const ALL: [Self; 3] = [Self::Bundle, Self::Listed, Self::ListedDigests];

    /// The word in the catalogue.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bundle => "sha256_bundle_digest",
            Self::Listed => "sha256_index_json_ascii_lex_raw_bytes",
            Self::ListedDigests => "sha256_member_digest_concat",
        }
    }
}

/// How one gate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRule {
    /// Its name.
    pub gate_id: String,
    /// Where its bundle lies, with `{manifest_fingerprint}` in it.
    pub folder: String,
    /// What the digest is called in its flag.
    pub flag_field: String,
    /// How the digest is made.
    pub method: DigestMethod,
    /// The file that lists its members.
    pub index: Option<String>,
    /// Whether the index has paths from the pack's root and not from the bundle.
    pub is_from_pack: bool,
    /// The gates that must have passed before.
    pub requires: Vec<String>,
}

/// Where one output lies and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRule {
    /// Its name.
    pub output_id: String,
    /// Its files, with names of pins in braces and one `*` in the last part.
    pub path: String,
    /// The gate that authorises it.
    pub gate: String,
    /// Further gates that whoever reads it asks for.
    pub read_requires_gates: Vec<String>,
}

/// Outputs and gates, with the digest of all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateMap {
    outputs: Vec<OutputRule>,
    gates: Vec<GateRule>,
    /// The streamer's half, which knows the modes.
    pub catalogue: Catalogue,
    /// What is in it, as plans and facts name it.
    pub content_digest: String,
}

impl GateMap {
    /// Reads a catalogue.
    ///
    /// # Errors
    /// Says what of it is wrong.
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
            return Err(CatalogueError(format!("gate {} is listed twice", pair[0])));
        }
        Ok(Self { outputs, gates, catalogue, content_digest: sha256_hex(&canonical) })
    }

    /// The output of this name.
    pub fn output(&self, output_id: &str) -> Option<&OutputRule> {
        self.outputs.iter().find(|output| output.output_id == output_id)
    }

    /// The gate of this name.
    pub fn gate(&self, gate_id: &str) -> Option<&GateRule> {
        self.gates.iter().find(|gate| gate.gate_id == gate_id)
    }

    /// Every gate that must have passed before these outputs may be read, in order of their names.
    ///
    /// # Errors
    /// When an output or a gate is not known, with its name.
    pub fn required_gates(&self, outputs: &[String]) -> Result<Vec<String>, (Reason, String)> {
        let mut wanted = Vec::new();
        for output_id in outputs {
            let output = self.output(output_id);
            let output = output.ok_or((Reason::UnknownOutputId, output_id.clone()))?;
            wanted.push(output.gate.clone());
            wanted.extend(output.read_requires_gates.iter().cloned());
        }
        let mut found = BTreeSet::new();
        while let Some(gate_id) = wanted.pop() {
            let gate = self.gate(&gate_id).ok_or((Reason::UnknownGateId, gate_id.clone()))?;
            if found.insert(gate_id) {
                wanted.extend(gate.requires.iter().cloned());
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
    let unknown = || CatalogueError(format!("gate {gate_id}: no digest is called {word}"));
    let method = method.ok_or_else(unknown)?;
    let index = object.get("index").and_then(Value::as_str).map(str::to_owned);
    if index.is_none() && method != DigestMethod::Bundle {
        return Err(CatalogueError(format!("gate {gate_id}: {word} needs an index")));
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
    found.map(str::to_owned).ok_or_else(|| CatalogueError(format!("{name} must be a text")))
}

fn texts(object: &Object<'_>, name: &str) -> Result<Vec<String>, CatalogueError> {
    let wrong = || CatalogueError(format!("{name} must be a list of texts"));
    match object.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(listed)) => {
            let texts: Option<_> =
                listed.iter().map(|one| one.as_str().map(str::to_owned)).collect();
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
    fn what_nobody_knows_is_named() {
        let unknown = (Reason::UnknownOutputId, "nothing".to_owned());
        assert_eq!(required(&["arrival_events_5B", "nothing"]), Err(unknown));
        let text = SHIPPED.replacen("\"requires\": [\"1A\"", "\"requires\": [\"9Z\"", 1);
        let map = GateMap::parse(&text).expect("it reads");
        let unknown = (Reason::UnknownGateId, "9Z".to_owned());
        assert_eq!(map.required_gates(&["arrival_events_5B".to_owned()]), Err(unknown));
        assert_ne!(map.content_digest, GateMap::parse(SHIPPED).expect("it reads").content_digest);
    }

    #[test]
    fn a_gate_that_could_not_be_checked_is_refused() {
        for (from, to) in [
            ("sha256_member_digest_concat", "md5"),
            ("\"index\": \"index.json\", \"index_paths_from\": \"pack\", ", ""),
            ("\"gate_id\": \"1B\"", "\"gate_id\": \"1A\""),
        ] {
            assert!(GateMap::parse(&SHIPPED.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
