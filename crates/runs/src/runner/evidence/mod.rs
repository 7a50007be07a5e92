//! Evidence: what must vouch for a run before it is ready, looked at where it lies.
//!
//! A flag says that a gate passed, for a bundle with one digest; the digest is made again from the
//! files. What is not there may still come. What is there and contradicts itself never passes.

mod bundle;
mod flag;

use std::io;

use admit_core::hash::hex;
use admit_core::json::{self, Limits, Value};
use sha2::{Digest as _, Sha256};

use super::gate_map::{GateMap, GateRule, OutputRule};
use super::reason::Reason;
use crate::streamer::identity::World;
use crate::streamer::pack::store::PackStore;
use bundle::{FLAG, Made};
use flag::Flag;

/// The receipt of the engine run.
const RECEIPT: &str = "run_receipt.json";

/// The manifest of a pack that has one.
const MANIFEST: &str = "_oracle_pack_manifest.json";

/// A gate that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Which.
    pub gate_id: String,
    /// The digest of its bundle.
    pub digest: String,
    /// Where the bundle is.
    pub folder: String,
}

/// An output that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Which.
    pub output_id: String,
    /// Where, in the pack.
    pub path: String,
    /// The digest of its files in path order.
    pub digest: String,
    /// How many there are.
    pub files: usize,
}

/// Everything that vouches for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// By gate.
    pub gates: Vec<Passed>,
    /// By output.
    pub outputs: Vec<Located>,
    /// The id of the pack, where it has a manifest.
    pub oracle_pack_id: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// All of it, and it holds.
    Complete(Evidence),
    /// Some of it is not there.
    Missing {
        /// Why the run fails if it does not come in time.
        reason: Reason,
        /// What is missing.
        what: Vec<String>,
    },
    /// It can never hold.
    Broken {
        /// Why.
        reason: Reason,
        /// Whether it contradicts itself; else it fails.
        is_conflict: bool,
        /// What exactly.
        detail: String,
    },
}

/// What evidence is looked for.
#[derive(Clone, Debug)]
pub struct Sought {
    /// The world the pack must be of.
    pub world: World,
    /// The outputs.
    pub outputs: Vec<String>,
    /// The gates.
    pub gates: Vec<String>,
}

/// Looks at everything. Blocks for as long as it takes to read the outputs.
///
/// # Errors
/// When the pack cannot be read.
pub fn gather(store: &dyn PackStore, map: &GateMap, sought: &Sought) -> io::Result<Gathered> {
    if let Some(found) = receipt(store, &sought.world)? {
        return Ok(found);
    }
    let oracle_pack_id = match manifest(store, &sought.world)? {
        Ok(id) => id,
        Err(broken) => return Ok(broken),
    };
    let (mut gates, mut missing) = (Vec::new(), Vec::new());
    for gate_id in &sought.gates {
        let rule = map.gate(gate_id).ok_or_else(|| io::Error::other("an unknown gate"))?;
        match look(store, rule, &sought.world.manifest_fingerprint)? {
            Look::Passed(passed) => gates.push(passed),
            Look::Missing(what) => missing.push(format!("gate {gate_id}: {what}")),
            Look::Broken(broken) => return Ok(broken),
        }
    }
    // Outputs are large: they are only read once every gate has passed.
    if !missing.is_empty() {
        return Ok(late(missing));
    }
    let mut outputs = Vec::new();
    for output_id in &sought.outputs {
        let rule = map.output(output_id).ok_or_else(|| io::Error::other("an unknown output"))?;
        match locate(store, rule, &sought.world)? {
            Some(located) => outputs.push(located),
            None => missing.push(format!("output {output_id}")),
        }
    }
    if !missing.is_empty() {
        return Ok(late(missing));
    }
    outputs.sort_unstable_by(|a, b| a.output_id.cmp(&b.output_id));
    gates.sort_unstable_by(|a, b| a.gate_id.cmp(&b.gate_id));
    Ok(Gathered::Complete(Evidence { gates, outputs, oracle_pack_id }))
}

fn late(what: Vec<String>) -> Gathered {
    Gathered::Missing { reason: Reason::EvidenceMissingDeadline, what }
}

fn broken(reason: Reason, is_conflict: bool, detail: impl Into<String>) -> Gathered {
    Gathered::Broken { reason, is_conflict, detail: detail.into() }
}

/// What is wrong with the pack's receipt, if anything is.
fn receipt(store: &dyn PackStore, world: &World) -> io::Result<Option<Gathered>> {
    let Some(bytes) = store.read(RECEIPT)? else {
        let what = vec![RECEIPT.to_owned()];
        return Ok(Some(Gathered::Missing { reason: Reason::EngineReceiptMissing, what }));
    };
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let Ok(Value::Object(receipt)) = json::parse(&bytes, &limits) else {
        let detail = format!("{RECEIPT} is no JSON object");
        return Ok(Some(broken(Reason::EngineReceiptInvalid, false, detail)));
    };
    let said = |name: &str| receipt.get(name).and_then(Value::as_str);
    let seed = receipt.get("seed").and_then(Value::as_u64);
    let (Some(mf), Some(ph), Some(seed), Some(_)) =
        (said("manifest_fingerprint"), said("parameter_hash"), seed, said("run_id"))
    else {
        let detail = format!("{RECEIPT} does not say which world and which run it is of");
        return Ok(Some(broken(Reason::EngineReceiptInvalid, false, detail)));
    };
    let is_same =
        mf == world.manifest_fingerprint && ph == world.parameter_hash && seed == world.seed;
    let detail = || format!("{RECEIPT} is of another world than the request");
    Ok((!is_same).then(|| broken(Reason::EngineReceiptMismatch, true, detail())))
}

/// The id in the pack's manifest, where it has one that fits.
fn manifest(store: &dyn PackStore, world: &World) -> io::Result<Result<Option<String>, Gathered>> {
    let Some(bytes) = store.read(MANIFEST)? else { return Ok(Ok(None)) };
    let limits = Limits { bytes_max: bytes.len().max(1), ..Limits::default() };
    let manifest = json::parse(&bytes, &limits).ok();
    let id = manifest.as_ref().and_then(|manifest| manifest.get("oracle_pack_id")?.as_str());
    let (Some(manifest), Some(id)) = (&manifest, id) else {
        let detail = format!("{MANIFEST} has no oracle_pack_id");
        return Ok(Err(broken(Reason::OraclePackInvalid, false, detail)));
    };
    let world_key = manifest.get("world_key").unwrap_or(manifest);
    let differs = |name: &str, wanted: &str| {
        world_key.get(name).and_then(Value::as_str).is_some_and(|said| said != wanted)
    };
    let seed = world_key.get("seed").and_then(Value::as_u64);
    if differs("manifest_fingerprint", &world.manifest_fingerprint)
        || differs("parameter_hash", &world.parameter_hash)
        || differs("scenario_id", &world.scenario_id)
        || seed.is_some_and(|seed| seed != world.seed)
    {
        let detail = format!("{MANIFEST} is of another world than the request");
        return Ok(Err(broken(Reason::OraclePackMismatch, true, detail)));
    }
    Ok(Ok(Some(id.to_owned())))
}

/// What one gate has to show.
enum Look {
    Passed(Passed),
    Missing(String),
    Broken(Gathered),
}

fn look(store: &dyn PackStore, rule: &GateRule, manifest_fingerprint: &str) -> io::Result<Look> {
    let folder = rule.folder.replace("{manifest_fingerprint}", manifest_fingerprint);
    let gate_id = rule.gate_id.clone();
    let place = format!("{folder}/{FLAG}");
    let conflict = |detail: String| {
        let detail = format!("gate {gate_id}: {detail}");
        Look::Broken(broken(Reason::EvidenceConflict, true, detail))
    };
    let Some(bytes) = store.read(&place)? else { return Ok(Look::Missing(place)) };
    let said = match flag::read(&bytes, &rule.flag_field) {
        Flag::Passed(digest) => digest,
        Flag::Empty => return Ok(Look::Missing(place)),
        Flag::Failed => {
            let detail = format!("gate {gate_id} says that it did not pass");
            return Ok(Look::Broken(broken(Reason::GateFail, false, detail)));
        }
        Flag::Unreadable => {
            return Ok(conflict(format!("{place} holds no {}", rule.flag_field)));
        }
    };
    Ok(match bundle::digest(store, rule, &folder)? {
        Made::Digest(digest) if digest == said => Look::Passed(Passed { gate_id, digest, folder }),
        Made::Digest(digest) => {
            conflict(format!("its flag vouches for {said}, its files make {digest}"))
        }
        Made::Missing(what) => Look::Missing(what),
        Made::Conflict(detail) => conflict(detail),
    })
}

/// Finds the files of an output and makes their digest.
fn locate(store: &dyn PackStore, rule: &OutputRule, world: &World) -> io::Result<Option<Located>> {
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
    let fits = |name: &String| {
        name.starts_with(start)
            && name.ends_with(end)
            && (name.len() >= start.len() + end.len())
            && (pattern.contains('*') || name == pattern)
    };
    let names = store.names(folder)?.unwrap_or_default();
    let names: Vec<String> = names.into_iter().filter(fits).collect();
    let mut hash = Sha256::new();
    for name in &names {
        if !bundle::add(store, &format!("{folder}/{name}"), &mut hash)? {
            return Ok(None);
        }
    }
    let digest = hex(&<[u8; 32]>::from(hash.finalize()));
    let files = names.len();
    let output_id = rule.output_id.clone();
    Ok((files > 0).then_some(Located { output_id, path, digest, files }))
}
