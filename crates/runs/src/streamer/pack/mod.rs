//! A pack: a sealed folder of one engine run, with a receipt of its world and views to stream.
//!
//! Opening it checks everything that can be known before the first row leaves: whose world it is,
//! that the gates have passed, that every view is complete and every file readable.

pub mod rows;
#[cfg(feature = "s3")]
pub mod s3;
pub mod source;
pub mod store;
mod view;

use std::sync::Arc;

use admit_core::json::{self, Limits, Value};

use super::facts::Facts;
use super::identity::{World, fallback_pack_key, oracle_pack_id};
use super::ready::{Ready, is_hex};
use super::reason::{Failure, Reason};
use crate::catalogue::{Catalogue, Output, Role};
use store::{PackStore, SMALL_BYTES_MAX};

pub use view::{PartFile, View};

/// The receipt of the engine run.
const RECEIPT: &str = "run_receipt.json";
/// The manifest of a pack that has one.
const MANIFEST: &str = "_oracle_pack_manifest.json";
/// Any of these seals a pack.
const SEALS: [&str; 3] = ["_SEALED.json", "_SEALED.flag", "_SEALED"];
/// Where views are, if nobody says otherwise.
const VIEWS: &str = "stream_view/ts_utc";

/// What a pack is opened for.
pub struct Wanted<'a> {
    /// What is streamed.
    pub ready: &'a Ready,
    /// What its runner found.
    pub facts: &'a Facts,
    /// The scenario of the run.
    pub scenario_id: &'a str,
    /// The pack's place, as it was written.
    pub engine_root: &'a str,
    /// Outputs and gates.
    pub catalogue: &'a Catalogue,
    /// Whether a manifest and a seal are a must.
    pub must_be_sealed: bool,
    /// The mode, whose outputs are streamed.
    pub mode: &'a str,
    /// Only these of them; empty is all.
    pub only: &'a [String],
    /// Where views are, when they are not in the pack.
    pub views: Option<Arc<dyn PackStore>>,
}

/// A pack that may be streamed.
pub struct Pack {
    /// Its key.
    pub key: String,
    /// Its world.
    pub world: World,
    /// The engine's id of the run.
    pub engine_run_id: String,
    /// The release that made it, where its manifest says so.
    pub engine_release: Option<String>,
    /// What is streamed, traffic first.
    pub views: Vec<Arc<View>>,
}

impl Pack {
    /// Opens a pack and checks it.
    ///
    /// # Errors
    /// With the reason it may not be streamed.
    pub fn open(store: &Arc<dyn PackStore>, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let (world, engine_run_id) = receipt(&**store, wanted.scenario_id)?;
        same_world(&world, &engine_run_id, wanted.facts)?;
        let manifest = manifest(&**store, &world, wanted)?;
        if wanted.must_be_sealed {
            sealed(&**store)?;
        }
        let outputs = outputs(wanted)?;
        for output in &outputs {
            passed(&**store, output, &world, wanted)?;
        }
        let (views, root) = match &wanted.views {
            Some(apart) => (apart, ""),
            None => (store, VIEWS),
        };
        let open = |output: &Output| View::open(views, root, output).map(Arc::new);
        Ok(Self {
            views: outputs.into_iter().map(open).collect::<Result<_, _>>()?,
            key: match &manifest {
                Some(manifest) => manifest.id.clone(),
                None => fallback_pack_key(wanted.engine_root),
            },
            world,
            engine_run_id,
            engine_release: manifest.and_then(|manifest| manifest.engine_release),
        })
    }
}

/// Reads one of the small files.
fn small(store: &dyn PackStore, path: &str, reason: Reason) -> Result<Option<Vec<u8>>, Failure> {
    let fail = |error| Failure::caused(reason, format!("{path} cannot be read"), error);
    store.read(path).map_err(fail)
}

fn parsed<'b>(bytes: &'b [u8], path: &str, reason: Reason) -> Result<Value<'b>, Failure> {
    let bytes_max = usize::try_from(SMALL_BYTES_MAX).unwrap_or(usize::MAX);
    let limits = Limits { bytes_max, ..Limits::default() };
    let fail = |error| Failure::caused(reason, format!("{path} is not JSON"), error);
    json::parse(bytes, &limits).map_err(fail)
}

/// The world of the pack and the engine's id of its run, from its receipt.
fn receipt(store: &dyn PackStore, scenario_id: &str) -> Result<(World, String), Failure> {
    let reason = Reason::RunReceiptUnreadable;
    let Some(bytes) = small(store, RECEIPT, reason)? else {
        return Err(Failure::new(reason, format!("{RECEIPT} is not there")));
    };
    let receipt = parsed(&bytes, RECEIPT, reason)?;
    let missing = |name: &str| {
        let detail = format!("{name} is missing in {RECEIPT} or malformed");
        Failure::new(Reason::WorldKeyMissing, detail)
    };
    let hex = |name: &str, digits| {
        let text = receipt.get(name).and_then(Value::as_str).filter(|text| is_hex(text, digits));
        text.map(str::to_owned).ok_or_else(|| missing(name))
    };
    let world = World {
        manifest_fingerprint: hex("manifest_fingerprint", 64)?,
        parameter_hash: hex("parameter_hash", 64)?,
        seed: receipt.get("seed").and_then(Value::as_u64).ok_or_else(|| missing("seed"))?,
        scenario_id: scenario_id.to_owned(),
    };
    Ok((world, hex("run_id", 32)?))
}

/// The facts must tell of the world the pack is of.
fn same_world(world: &World, engine_run_id: &str, facts: &Facts) -> Result<(), Failure> {
    let pins = &facts.pins;
    let run = |pin: &String| *pin == facts.run_id || pin == engine_run_id;
    for (name, agrees) in [
        ("manifest_fingerprint", pins.manifest_fingerprint == world.manifest_fingerprint),
        ("parameter_hash", pins.parameter_hash == world.parameter_hash),
        ("seed", pins.seed == world.seed),
        ("run_id", pins.run_id.as_ref().is_none_or(run)),
    ] {
        if !agrees {
            return Err(mismatch(format!("{name} of {RECEIPT} is not that of the facts")));
        }
    }
    Ok(())
}

fn mismatch(detail: String) -> Failure {
    Failure::new(Reason::WorldKeyMismatch, detail)
}

struct Manifest {
    id: String,
    engine_release: Option<String>,
}

/// The manifest, which must be of this world where there is one.
fn manifest(
    store: &dyn PackStore,
    world: &World,
    wanted: &Wanted<'_>,
) -> Result<Option<Manifest>, Failure> {
    let reason = Reason::PackManifestInvalid;
    let Some(bytes) = small(store, MANIFEST, reason)? else {
        if wanted.must_be_sealed {
            let detail = format!("{MANIFEST} is not there, and this profile wants one");
            return Err(Failure::new(Reason::PackManifestMissing, detail));
        }
        return Ok(None);
    };
    let manifest = parsed(&bytes, MANIFEST, reason)?;
    let said = |name: &str| {
        let within = manifest.get("world_key").and_then(|key| key.get(name));
        within.or_else(|| manifest.get(name)).filter(|value| !value.is_null())
    };
    let text = |name: &str| said(name).and_then(Value::as_str);
    let id = text("oracle_pack_id").filter(|id| is_hex(id, 64));
    let Some(id) = id else {
        return Err(Failure::new(reason, "oracle_pack_id is missing or malformed"));
    };
    let texts = [
        ("manifest_fingerprint", &world.manifest_fingerprint),
        ("parameter_hash", &world.parameter_hash),
        ("scenario_id", &world.scenario_id),
    ];
    for (name, ours) in texts {
        if said(name).is_some_and(|value| value.as_str() != Some(ours)) {
            return Err(mismatch(format!("{name} of {MANIFEST} is not that of the run")));
        }
    }
    if said("seed").is_some_and(|seed| seed.as_u64() != Some(world.seed)) {
        return Err(mismatch(format!("seed of {MANIFEST} is not that of the run")));
    }
    let made_by = (text("engine_release"), text("catalogue_digest"), text("gate_map_digest"));
    if let (Some(release), Some(catalogue), Some(gates)) = made_by
        && oracle_pack_id(world, release, catalogue, gates) != id
    {
        return Err(Failure::new(reason, "oracle_pack_id is not that of the manifest's content"));
    }
    let named = [&wanted.ready.pack.oracle_pack_id, &wanted.facts.pack.oracle_pack_id];
    if named.into_iter().flatten().any(|named| named != id) {
        return Err(mismatch(format!("oracle_pack_id of {MANIFEST} is not that of the run")));
    }
    let engine_release = text("engine_release").map(str::to_owned);
    Ok(Some(Manifest { id: id.to_owned(), engine_release }))
}

fn sealed(store: &dyn PackStore) -> Result<(), Failure> {
    for seal in SEALS {
        if small(store, seal, Reason::PackNotSealed)?.is_some() {
            return Ok(());
        }
    }
    Err(Failure::new(Reason::PackNotSealed, "there is no _SEALED.json, and this profile wants one"))
}

/// The outputs to stream: those of the mode that the run is of, traffic first.
fn outputs<'c>(wanted: &Wanted<'c>) -> Result<Vec<&'c Output>, Failure> {
    let unknown = |id: &String| wanted.catalogue.output(id).is_none();
    if let Some(id) = wanted.facts.outputs.iter().chain(wanted.only).find(|id| unknown(id)) {
        let detail = format!("{id} is not in the catalogue");
        return Err(Failure::new(Reason::UnknownOutputId, detail));
    }
    let is_wanted = |output: &&Output| {
        let is_of = |ids: &[String]| ids.contains(&output.output_id);
        is_of(&wanted.facts.outputs) && (wanted.only.is_empty() || is_of(wanted.only))
    };
    let found: Vec<&Output> =
        wanted.catalogue.of_mode(wanted.mode).into_iter().filter(is_wanted).collect();
    if !found.iter().any(|output| output.role == Role::Traffic) {
        let detail = format!("the run has no traffic output of mode {}", wanted.mode);
        return Err(Failure::new(Reason::NoTrafficOutputs, detail));
    }
    Ok(found)
}

/// The gate of an output must have passed, in the facts and in the pack.
fn passed(
    store: &dyn PackStore,
    output: &Output,
    world: &World,
    wanted: &Wanted<'_>,
) -> Result<(), Failure> {
    let reason = Reason::GatePassMissing;
    let gate = &output.gate;
    if wanted.facts.failed_gates.contains(gate) {
        return Err(Failure::new(reason, format!("the facts say that gate {gate} failed")));
    }
    let flag = wanted.catalogue.flag(gate, &world.manifest_fingerprint);
    let flag =
        flag.ok_or_else(|| Failure::new(reason, format!("{gate} is not in the catalogue")))?;
    match small(store, &flag, reason)? {
        Some(_) => Ok(()),
        None => Err(Failure::new(reason, format!("{flag} is not there"))),
    }
}
