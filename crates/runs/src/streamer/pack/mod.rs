//! Packs: a pack is a sealed folder of one engine run, with a receipt of its world and views to
//! stream.
//!
//! Opening a pack checks everything before the first row is sent: its world, that its gates have
//! passed, that every view is complete and every file readable.

pub mod rows;
#[cfg(feature = "s3")]
pub mod s3;
pub mod source;
pub mod store;
mod view;

use std::sync::Arc;

use admit_core::json::{self, Limits, Value};

use super::facts::Facts;
use super::identity::{WorldPins, fallback_pack_key, oracle_pack_id};
use super::ready::{Ready, is_hex};
use super::reason::{Reason, RunFailure};
use crate::catalogue::{Catalogue, Output, OutputRole};
use store::{PackStore, SMALL_BYTES_MAX};

pub use view::{PartFile, StreamView};

/// The receipt of the engine run.
const RECEIPT: &str = "run_receipt.json";
/// The manifest of a pack that has one.
const MANIFEST: &str = "_oracle_pack_manifest.json";
/// Any of these files seals a pack.
const SEALS: [&str; 3] = ["_SEALED.json", "_SEALED.flag", "_SEALED"];
/// Default location of the views.
const VIEWS: &str = "stream_view/ts_utc";

/// Requirements for opening a pack.
pub struct PackRequest<'a> {
    /// The READY signal.
    pub ready: &'a Ready,
    /// The facts of the run.
    pub facts: &'a Facts,
    /// The scenario of the run.
    pub scenario_id: &'a str,
    /// Location of the pack, as written.
    pub engine_root: &'a str,
    /// Outputs and gates.
    pub catalogue: &'a Catalogue,
    /// Whether a manifest and a seal are required.
    pub must_be_sealed: bool,
    /// The mode that selects the outputs.
    pub mode: &'a str,
    /// Restricts the outputs; empty is all.
    pub only: &'a [String],
    /// Location of the views, if outside the pack.
    pub views: Option<Arc<dyn PackStore>>,
}

/// A pack that passed all checks.
pub struct Pack {
    /// Its key.
    pub key: String,
    /// Its world.
    pub world: WorldPins,
    /// The engine's id of the run.
    pub engine_run_id: String,
    /// The release that made it, if in its manifest.
    pub engine_release: Option<String>,
    /// The views to stream, traffic first.
    pub views: Vec<Arc<StreamView>>,
}

impl Pack {
    /// Opens a pack and checks it.
    ///
    /// # Errors
    /// With the reason why it must not be streamed.
    pub fn open(store: &Arc<dyn PackStore>, request: &PackRequest<'_>) -> Result<Self, RunFailure> {
        let (world, engine_run_id) = receipt(&**store, request.scenario_id)?;
        same_world(&world, &engine_run_id, request.facts)?;
        let manifest = manifest(&**store, &world, request)?;
        if request.must_be_sealed {
            check_seal(&**store)?;
        }
        let outputs = outputs(request)?;
        for output in &outputs {
            check_gate(&**store, output, &world, request)?;
        }
        let (views, root) = match &request.views {
            Some(view_store) => (view_store, ""),
            None => (store, VIEWS),
        };
        let open = |output: &Output| StreamView::open(views, root, output).map(Arc::new);
        Ok(Self {
            views: outputs.into_iter().map(open).collect::<Result<_, _>>()?,
            key: match &manifest {
                Some(manifest) => manifest.id.clone(),
                None => fallback_pack_key(request.engine_root),
            },
            world,
            engine_run_id,
            engine_release: manifest.and_then(|manifest| manifest.engine_release),
        })
    }
}

/// Reads a small file.
fn read_small(
    store: &dyn PackStore,
    path: &str,
    reason: Reason,
) -> Result<Option<Vec<u8>>, RunFailure> {
    let fail = |error| RunFailure::caused(reason, format!("{path} cannot be read"), error);
    store.read(path).map_err(fail)
}

fn parse_json<'b>(bytes: &'b [u8], path: &str, reason: Reason) -> Result<Value<'b>, RunFailure> {
    let bytes_max = usize::try_from(SMALL_BYTES_MAX).unwrap_or(usize::MAX);
    let limits = Limits { bytes_max, ..Limits::default() };
    let fail = |error| RunFailure::caused(reason, format!("{path} is not JSON"), error);
    json::parse(bytes, &limits).map_err(fail)
}

/// Reads the world and the engine's run id from the receipt.
fn receipt(store: &dyn PackStore, scenario_id: &str) -> Result<(WorldPins, String), RunFailure> {
    let reason = Reason::RunReceiptUnreadable;
    let Some(bytes) = read_small(store, RECEIPT, reason)? else {
        return Err(RunFailure::new(reason, format!("{RECEIPT} does not exist")));
    };
    let receipt = parse_json(&bytes, RECEIPT, reason)?;
    let missing = |name: &str| {
        let detail = format!("{name} is missing in {RECEIPT} or malformed");
        RunFailure::new(Reason::WorldKeyMissing, detail)
    };
    let hex = |name: &str, digits| {
        let text = receipt.get(name).and_then(Value::as_str).filter(|text| is_hex(text, digits));
        text.map(str::to_owned).ok_or_else(|| missing(name))
    };
    let world = WorldPins {
        manifest_fingerprint: hex("manifest_fingerprint", 64)?,
        parameter_hash: hex("parameter_hash", 64)?,
        seed: receipt.get("seed").and_then(Value::as_u64).ok_or_else(|| missing("seed"))?,
        scenario_id: scenario_id.to_owned(),
    };
    Ok((world, hex("run_id", 32)?))
}

/// Checks that facts and pack have the same world.
fn same_world(world: &WorldPins, engine_run_id: &str, facts: &Facts) -> Result<(), RunFailure> {
    let pins = &facts.pins;
    let run = |pin: &String| *pin == facts.run_id || pin == engine_run_id;
    for (name, agrees) in [
        ("manifest_fingerprint", pins.manifest_fingerprint == world.manifest_fingerprint),
        ("parameter_hash", pins.parameter_hash == world.parameter_hash),
        ("seed", pins.seed == world.seed),
        ("run_id", pins.run_id.as_ref().is_none_or(run)),
    ] {
        if !agrees {
            return Err(mismatch(format!("{name} of {RECEIPT} differs from that of the facts")));
        }
    }
    Ok(())
}

fn mismatch(detail: String) -> RunFailure {
    RunFailure::new(Reason::WorldKeyMismatch, detail)
}

struct PackManifest {
    id: String,
    engine_release: Option<String>,
}

/// Reads the manifest, if any, and checks its world.
fn manifest(
    store: &dyn PackStore,
    world: &WorldPins,
    request: &PackRequest<'_>,
) -> Result<Option<PackManifest>, RunFailure> {
    let reason = Reason::PackManifestInvalid;
    let Some(bytes) = read_small(store, MANIFEST, reason)? else {
        if request.must_be_sealed {
            let detail = format!("{MANIFEST} does not exist, and this profile requires it");
            return Err(RunFailure::new(Reason::PackManifestMissing, detail));
        }
        return Ok(None);
    };
    let manifest = parse_json(&bytes, MANIFEST, reason)?;
    let field = |name: &str| {
        let within = manifest.get("world_key").and_then(|key| key.get(name));
        within.or_else(|| manifest.get(name)).filter(|value| !value.is_null())
    };
    let text = |name: &str| field(name).and_then(Value::as_str);
    let id = text("oracle_pack_id").filter(|id| is_hex(id, 64));
    let Some(id) = id else {
        return Err(RunFailure::new(reason, "oracle_pack_id is missing or malformed"));
    };
    let texts = [
        ("manifest_fingerprint", &world.manifest_fingerprint),
        ("parameter_hash", &world.parameter_hash),
        ("scenario_id", &world.scenario_id),
    ];
    for (name, ours) in texts {
        if field(name).is_some_and(|value| value.as_str() != Some(ours)) {
            return Err(mismatch(format!("{name} of {MANIFEST} differs from that of the run")));
        }
    }
    if field("seed").is_some_and(|seed| seed.as_u64() != Some(world.seed)) {
        return Err(mismatch(format!("seed of {MANIFEST} differs from that of the run")));
    }
    let origin = (text("engine_release"), text("catalogue_digest"), text("gate_map_digest"));
    if let (Some(release), Some(catalogue), Some(gates)) = origin
        && oracle_pack_id(world, release, catalogue, gates) != id
    {
        return Err(RunFailure::new(
            reason,
            "oracle_pack_id does not match the manifest's content",
        ));
    }
    let ids = [&request.ready.pack.oracle_pack_id, &request.facts.pack.oracle_pack_id];
    if ids.into_iter().flatten().any(|other| other != id) {
        return Err(mismatch(format!("oracle_pack_id of {MANIFEST} differs from that of the run")));
    }
    let engine_release = text("engine_release").map(str::to_owned);
    Ok(Some(PackManifest { id: id.to_owned(), engine_release }))
}

fn check_seal(store: &dyn PackStore) -> Result<(), RunFailure> {
    for seal in SEALS {
        if read_small(store, seal, Reason::PackNotSealed)?.is_some() {
            return Ok(());
        }
    }
    Err(RunFailure::new(
        Reason::PackNotSealed,
        "_SEALED.json does not exist, and this profile requires it",
    ))
}

/// Outputs to stream: those of the mode that belong to the run, traffic first.
fn outputs<'c>(request: &PackRequest<'c>) -> Result<Vec<&'c Output>, RunFailure> {
    let unknown = |id: &String| request.catalogue.output(id).is_none();
    if let Some(id) = request.facts.outputs.iter().chain(request.only).find(|id| unknown(id)) {
        let detail = format!("{id} is not in the catalogue");
        return Err(RunFailure::new(Reason::UnknownOutputId, detail));
    }
    let is_requested = |output: &&Output| {
        let is_of = |ids: &[String]| ids.contains(&output.output_id);
        is_of(&request.facts.outputs) && (request.only.is_empty() || is_of(request.only))
    };
    let found: Vec<&Output> =
        request.catalogue.of_mode(request.mode).into_iter().filter(is_requested).collect();
    if !found.iter().any(|output| output.role == OutputRole::Traffic) {
        let detail = format!("the run has no traffic output of mode {}", request.mode);
        return Err(RunFailure::new(Reason::NoTrafficOutputs, detail));
    }
    Ok(found)
}

/// Checks that the gate of an output has passed, in the facts and in the pack.
fn check_gate(
    store: &dyn PackStore,
    output: &Output,
    world: &WorldPins,
    request: &PackRequest<'_>,
) -> Result<(), RunFailure> {
    let reason = Reason::GatePassMissing;
    let gate = &output.gate;
    if request.facts.failed_gates.contains(gate) {
        return Err(RunFailure::new(reason, format!("gate {gate} failed according to the facts")));
    }
    let flag = request.catalogue.flag(gate, &world.manifest_fingerprint);
    let flag =
        flag.ok_or_else(|| RunFailure::new(reason, format!("{gate} is not in the catalogue")))?;
    match read_small(store, &flag, reason)? {
        Some(_) => Ok(()),
        None => Err(RunFailure::new(reason, format!("{flag} does not exist"))),
    }
}
