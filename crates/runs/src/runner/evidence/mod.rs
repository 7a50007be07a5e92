//! Evidence of a run: gate flags and outputs in its pack, checked before the run is ready.
//!
//! A flag records that a gate passed for a bundle with a certain digest; the digest is recomputed from
//! the files. Missing evidence may still arrive. Contradictory evidence is final.

mod bundle;
mod flag;

use std::io;

use admit_core::hash::hex;
use admit_core::json::{self, Limits, Value};
use sha2::{Digest as _, Sha256};

use super::gate_map::{GateMap, GateRule, OutputRule};
use super::reason::Reason;
use crate::streamer::identity::WorldPins;
use crate::streamer::pack::store::PackStore;
use bundle::{BundleDigest, FLAG};
use flag::Flag;

/// The receipt of the engine run.
const RECEIPT: &str = "run_receipt.json";

/// The manifest of the pack, which is optional.
const MANIFEST: &str = "_oracle_pack_manifest.json";

/// A gate that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedGate {
    /// The gate.
    pub gate_id: String,
    /// Digest of its bundle.
    pub digest: String,
    /// Folder of the bundle.
    pub folder: String,
}

/// An output that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedOutput {
    /// The output.
    pub output_id: String,
    /// Path pattern in the pack.
    pub path: String,
    /// Digest of its files in path order.
    pub digest: String,
    /// Number of files.
    pub files: usize,
}

/// Complete evidence of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvidence {
    /// The gates.
    pub gates: Vec<PassedGate>,
    /// The outputs.
    pub outputs: Vec<LocatedOutput>,
    /// Pack id from the manifest, if any.
    pub oracle_pack_id: Option<String>,
}

/// Result of checking evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceResult {
    /// Complete and valid.
    Complete(RunEvidence),
    /// Incomplete.
    Missing {
        /// Failure reason of the run on timeout.
        reason: Reason,
        /// The missing evidence.
        what: Vec<String>,
    },
    /// Permanently invalid.
    Broken {
        /// The reason.
        reason: Reason,
        /// Whether it is contradictory (the run is quarantined); otherwise the run fails.
        is_conflict: bool,
        /// Detail for operators.
        detail: String,
    },
}

/// Required evidence.
#[derive(Clone, Debug)]
pub struct EvidenceQuery {
    /// The required world of the pack.
    pub world: WorldPins,
    /// The outputs.
    pub outputs: Vec<String>,
    /// The gates.
    pub gates: Vec<String>,
}

/// Checks all evidence. Blocks while the outputs are read.
///
/// # Errors
/// When the pack cannot be read.
pub fn gather(
    store: &dyn PackStore,
    map: &GateMap,
    query: &EvidenceQuery,
) -> io::Result<EvidenceResult> {
    if let Some(found) = check_receipt(store, &query.world)? {
        return Ok(found);
    }
    let oracle_pack_id = match read_manifest(store, &query.world)? {
        Ok(id) => id,
        Err(broken) => return Ok(broken),
    };
    let (mut gates, mut missing) = (Vec::new(), Vec::new());
    for gate_id in &query.gates {
        let rule =
            map.gate(gate_id).ok_or_else(|| io::Error::other(format!("unknown gate {gate_id}")))?;
        match check_gate(store, rule, &query.world.manifest_fingerprint)? {
            GateCheck::Passed(passed) => gates.push(passed),
            GateCheck::Missing(what) => missing.push(format!("gate {gate_id}: {what}")),
            GateCheck::Broken(broken) => return Ok(broken),
        }
    }
    // Outputs are large: read them only after every gate has passed.
    if !missing.is_empty() {
        return Ok(incomplete(missing));
    }
    let mut outputs = Vec::new();
    for output_id in &query.outputs {
        let rule = map
            .output(output_id)
            .ok_or_else(|| io::Error::other(format!("unknown output {output_id}")))?;
        match locate_output(store, rule, &query.world)? {
            Some(located) => outputs.push(located),
            None => missing.push(format!("output {output_id}")),
        }
    }
    if !missing.is_empty() {
        return Ok(incomplete(missing));
    }
    outputs.sort_unstable_by(|a, b| a.output_id.cmp(&b.output_id));
    gates.sort_unstable_by(|a, b| a.gate_id.cmp(&b.gate_id));
    Ok(EvidenceResult::Complete(RunEvidence { gates, outputs, oracle_pack_id }))
}

fn incomplete(what: Vec<String>) -> EvidenceResult {
    EvidenceResult::Missing { reason: Reason::EvidenceMissingDeadline, what }
}

fn broken(reason: Reason, is_conflict: bool, detail: impl Into<String>) -> EvidenceResult {
    EvidenceResult::Broken { reason, is_conflict, detail: detail.into() }
}

/// Checks the pack's receipt. Returns the problem, if any.
fn check_receipt(store: &dyn PackStore, world: &WorldPins) -> io::Result<Option<EvidenceResult>> {
    let Some(bytes) = store.read(RECEIPT)? else {
        let what = vec![RECEIPT.to_owned()];
        return Ok(Some(EvidenceResult::Missing { reason: Reason::EngineReceiptMissing, what }));
    };
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let Ok(Value::Object(receipt)) = json::parse(&bytes, &limits) else {
        let detail = format!("{RECEIPT} is not a JSON object");
        return Ok(Some(broken(Reason::EngineReceiptInvalid, false, detail)));
    };
    let field = |name: &str| receipt.get(name).and_then(Value::as_str);
    let seed = receipt.get("seed").and_then(Value::as_u64);
    let (Some(mf), Some(ph), Some(seed), Some(_)) =
        (field("manifest_fingerprint"), field("parameter_hash"), seed, field("run_id"))
    else {
        let detail =
            format!("{RECEIPT} lacks manifest_fingerprint, parameter_hash, seed or run_id");
        return Ok(Some(broken(Reason::EngineReceiptInvalid, false, detail)));
    };
    let is_same =
        mf == world.manifest_fingerprint && ph == world.parameter_hash && seed == world.seed;
    let detail = || format!("{RECEIPT} belongs to another world than the request");
    Ok((!is_same).then(|| broken(Reason::EngineReceiptMismatch, true, detail())))
}

/// Reads the pack id from the manifest, if any, and checks its world.
fn read_manifest(
    store: &dyn PackStore,
    world: &WorldPins,
) -> io::Result<Result<Option<String>, EvidenceResult>> {
    let Some(bytes) = store.read(MANIFEST)? else { return Ok(Ok(None)) };
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let manifest = json::parse(&bytes, &limits).ok();
    let id = manifest.as_ref().and_then(|manifest| manifest.get("oracle_pack_id")?.as_str());
    let (Some(manifest), Some(id)) = (&manifest, id) else {
        let detail = format!("{MANIFEST} has no oracle_pack_id");
        return Ok(Err(broken(Reason::OraclePackInvalid, false, detail)));
    };
    let world_key = manifest.get("world_key").unwrap_or(manifest);
    let differs = |name: &str, expected: &str| {
        world_key.get(name).and_then(Value::as_str).is_some_and(|found| found != expected)
    };
    let seed = world_key.get("seed").and_then(Value::as_u64);
    if differs("manifest_fingerprint", &world.manifest_fingerprint)
        || differs("parameter_hash", &world.parameter_hash)
        || differs("scenario_id", &world.scenario_id)
        || seed.is_some_and(|seed| seed != world.seed)
    {
        let detail = format!("{MANIFEST} belongs to another world than the request");
        return Ok(Err(broken(Reason::OraclePackMismatch, true, detail)));
    }
    Ok(Ok(Some(id.to_owned())))
}

/// Result of checking one gate.
enum GateCheck {
    Passed(PassedGate),
    Missing(String),
    Broken(EvidenceResult),
}

fn check_gate(
    store: &dyn PackStore,
    rule: &GateRule,
    manifest_fingerprint: &str,
) -> io::Result<GateCheck> {
    let folder = rule.folder.replace("{manifest_fingerprint}", manifest_fingerprint);
    let gate_id = rule.gate_id.clone();
    let flag_path = format!("{folder}/{FLAG}");
    let conflict = |detail: String| {
        let detail = format!("gate {gate_id}: {detail}");
        GateCheck::Broken(broken(Reason::EvidenceConflict, true, detail))
    };
    let Some(bytes) = store.read(&flag_path)? else { return Ok(GateCheck::Missing(flag_path)) };
    let expected = match flag::parse(&bytes, &rule.flag_field) {
        Flag::Passed(digest) => digest,
        Flag::Empty => return Ok(GateCheck::Missing(flag_path)),
        Flag::Failed => {
            let detail = format!("gate {gate_id} did not pass according to its flag");
            return Ok(GateCheck::Broken(broken(Reason::GateFail, false, detail)));
        }
        Flag::Unreadable => {
            return Ok(conflict(format!("{flag_path} has no valid {}", rule.flag_field)));
        }
    };
    Ok(match bundle::compute(store, rule, &folder)? {
        BundleDigest::Computed(digest) if digest == expected => {
            GateCheck::Passed(PassedGate { gate_id, digest, folder })
        }
        BundleDigest::Computed(digest) => {
            conflict(format!("digest mismatch: the flag has {expected}, the files have {digest}"))
        }
        BundleDigest::Missing(what) => GateCheck::Missing(what),
        BundleDigest::Conflict(detail) => conflict(detail),
    })
}

/// Finds the files of an output and computes their digest.
fn locate_output(
    store: &dyn PackStore,
    rule: &OutputRule,
    world: &WorldPins,
) -> io::Result<Option<LocatedOutput>> {
    let path = [
        ("{output_id}", &*rule.output_id),
        ("{seed}", &*world.seed.to_string()),
        ("{parameter_hash}", &*world.parameter_hash),
        ("{manifest_fingerprint}", &*world.manifest_fingerprint),
        ("{scenario_id}", &*world.scenario_id),
    ]
    .iter()
    .fold(rule.path.clone(), |path, (name, value)| path.replace(name, value));
    let (folder, pattern) = path.rsplit_once('/').unwrap_or(("", &path));
    let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
    let matches = |name: &String| {
        name.starts_with(start)
            && name.ends_with(end)
            && (name.len() >= start.len() + end.len())
            && (pattern.contains('*') || name == pattern)
    };
    let names = store.names(folder)?.unwrap_or_default();
    let names: Vec<String> = names.into_iter().filter(matches).collect();
    let mut hash = Sha256::new();
    for name in &names {
        if !bundle::hash_file(store, &format!("{folder}/{name}"), &mut hash)? {
            return Ok(None);
        }
    }
    let digest = hex(&<[u8; 32]>::from(hash.finalize()));
    let files = names.len();
    let output_id = rule.output_id.clone();
    Ok((files > 0).then_some(LocatedOutput { output_id, path, digest, files }))
}
