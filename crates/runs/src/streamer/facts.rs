//! Facts of a run, as committed by its runner before READY.
//!
//! Facts and pack must agree about the run; otherwise nothing is streamed.

use admit_core::json::{self, Limits, Object, Value};

use super::ready::{PackRef, Ready, is_hex};
use super::reason::{Reason, RunFailure};

/// Maximum size of a facts view.
const BYTES_MAX: usize = 16 << 20;

/// Content of a valid facts view that the streamer uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The runner's id of the run.
    pub run_id: String,
    /// The platform run, if the facts name one.
    pub platform_run_id: Option<String>,
    /// The scenario run, if they name one.
    pub scenario_run_id: Option<String>,
    /// The pins.
    pub pins: Pins,
    /// Names of the checked outputs.
    pub outputs: Vec<String>,
    /// Gates that did not pass.
    pub failed_gates: Vec<String>,
    /// The pack, if the facts name it.
    pub pack: PackRef,
    /// Hash of the evidence bundle of the run.
    pub bundle_hash: String,
}

/// Pins of every event of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// 64 hex digits.
    pub manifest_fingerprint: String,
    /// 64 hex digits.
    pub parameter_hash: String,
    /// The seed.
    pub seed: u64,
    /// The scenario; checked where it is needed.
    pub scenario_id: Option<String>,
    /// The runner's or the engine's id of the run.
    pub run_id: Option<String>,
    /// Must equal the top-level value.
    pub platform_run_id: Option<String>,
    /// Must equal the top-level value.
    pub scenario_run_id: Option<String>,
}

impl Facts {
    /// Reads a facts view.
    ///
    /// # Errors
    /// `RUN_FACTS_INVALID` with the reason.
    pub fn read(bytes: &[u8]) -> Result<Self, RunFailure> {
        let limits = Limits { bytes_max: BYTES_MAX, ..Limits::default() };
        let value = json::parse(bytes, &limits)
            .map_err(|error| RunFailure::caused(Reason::RunFactsInvalid, "not readable", error))?;
        let facts = value.as_object().ok_or_else(|| invalid("not an object"))?;
        for name in ["plan_ref", "record_ref", "status_ref"] {
            text(facts, name).ok_or_else(|| invalid(format!("{name} is missing")))?;
        }
        let has_policy = facts.get("policy_rev").is_some_and(Value::is_object);
        let bundle_hash = text(facts, "bundle_hash").filter(|hash| is_hex(hash, 64));
        let (true, Some(bundle_hash)) = (has_policy, bundle_hash) else {
            return Err(invalid("policy_rev or bundle_hash is missing or malformed"));
        };
        let run_id = text(facts, "run_id").filter(|id| is_hex(id, 32));
        let pins = facts.get("pins").and_then(Value::as_object);
        Ok(Self {
            run_id: run_id.ok_or_else(|| invalid("run_id is missing or malformed"))?,
            platform_run_id: text(facts, "platform_run_id"),
            scenario_run_id: text(facts, "scenario_run_id"),
            pins: Pins::read(pins.ok_or_else(|| invalid("pins are missing"))?)?,
            outputs: outputs(facts)?,
            failed_gates: failed_gates(facts)?,
            pack: PackRef::of(facts),
            bundle_hash,
        })
    }

    /// Checks that READY was published for these facts.
    ///
    /// # Errors
    /// `RUN_FACTS_INVALID` with both hashes.
    pub fn same_bundle(&self, ready: &Ready) -> Result<(), RunFailure> {
        if self.bundle_hash == ready.bundle_hash {
            return Ok(());
        }
        let (facts, announced) = (&self.bundle_hash, &ready.bundle_hash);
        Err(invalid(format!("bundle_hash of the facts is {facts}, READY has {announced}")))
    }

    /// Checks that READY and the facts belong to the same run. Returns its platform and scenario
    /// run ids.
    ///
    /// # Errors
    /// With the missing or differing id.
    pub fn ids(&self, ready: &Ready) -> Result<(String, String), RunFailure> {
        let platform = agreed(
            [&self.platform_run_id, &self.pins.platform_run_id],
            &ready.platform_run_id,
            [Reason::PlatformRunIdMissing, Reason::PlatformRunIdMismatch],
        )?;
        let scenario = agreed(
            [&self.scenario_run_id, &self.pins.scenario_run_id],
            &ready.scenario_run_id,
            [Reason::ScenarioRunIdMissing, Reason::ScenarioRunIdMismatch],
        )?;
        Ok((platform, scenario))
    }

    /// Checks that READY and the facts have the same world pins.
    ///
    /// # Errors
    /// With the first differing pin.
    pub fn same_world(&self, ready: &Ready) -> Result<(), RunFailure> {
        let pins = &self.pins;
        for (name, facts, ready_value) in [
            ("manifest_fingerprint", Some(&pins.manifest_fingerprint), &ready.manifest_fingerprint),
            ("parameter_hash", Some(&pins.parameter_hash), &ready.parameter_hash),
            ("scenario_id", pins.scenario_id.as_ref(), &ready.scenario_id),
        ] {
            if facts.is_some_and(|facts| facts != ready_value) {
                let detail = format!("{name} differs between READY and the facts");
                return Err(RunFailure::new(Reason::WorldKeyMismatch, detail));
            }
        }
        Ok(())
    }

    /// Location of the pack. READY and facts may both name it, but must agree.
    ///
    /// # Errors
    /// When neither names it, or they differ.
    pub fn engine_root(&self, ready: &Ready) -> Result<String, RunFailure> {
        match (&ready.pack.engine_run_root, &self.pack.engine_run_root) {
            (Some(first), Some(other)) if first != other => Err(RunFailure::new(
                Reason::EngineRootMismatch,
                format!("READY names the pack {first}, the facts name {other}"),
            )),
            (Some(root), _) | (None, Some(root)) => Ok(root.clone()),
            (None, None) => Err(RunFailure::new(
                Reason::EngineRootMissing,
                "neither READY nor the facts name oracle_pack_ref.engine_run_root",
            )),
        }
    }
}

impl Pins {
    fn read(pins: &Object<'_>) -> Result<Self, RunFailure> {
        let hex = |name: &str| {
            let found = text(pins, name).filter(|text| is_hex(text, 64));
            found.ok_or_else(|| invalid(format!("pins.{name} is missing or malformed")))
        };
        let seed = pins.get("seed").and_then(Value::as_u64);
        Ok(Self {
            manifest_fingerprint: hex("manifest_fingerprint")?,
            parameter_hash: hex("parameter_hash")?,
            seed: seed.ok_or_else(|| invalid("pins.seed is missing or not an integer"))?,
            scenario_id: text(pins, "scenario_id"),
            run_id: text(pins, "run_id"),
            platform_run_id: text(pins, "platform_run_id"),
            scenario_run_id: text(pins, "scenario_run_id"),
        })
    }
}

/// Returns the id if READY, the facts and their pins agree.
fn agreed(
    facts: [&Option<String>; 2],
    ready: &str,
    [missing, mismatch]: [Reason; 2],
) -> Result<String, RunFailure> {
    let Some(id) = facts[0] else {
        return Err(RunFailure::new(missing, "missing in the facts"));
    };
    let differs = |other: &String| other != id;
    if id != ready || facts[1].as_ref().is_some_and(differs) {
        return Err(RunFailure::new(mismatch, "READY, the facts and their pins differ"));
    }
    Ok(id.clone())
}

/// Outputs of the run: the intended ones, or those located.
fn outputs(facts: &Object<'_>) -> Result<Vec<String>, RunFailure> {
    let locators = facts.get("locators").and_then(Value::as_array);
    let locators = locators.ok_or_else(|| invalid("locators are missing"))?;
    let located: Option<Vec<String>> = locators
        .iter()
        .map(|locator| {
            locator.get("path").and_then(Value::as_str)?;
            locator.get("output_id").and_then(Value::as_str).map(str::to_owned)
        })
        .collect();
    let located = located.ok_or_else(|| invalid("a locator lacks output_id or path"))?;
    let intended = facts.get("intended_outputs").and_then(Value::as_array).unwrap_or_default();
    let intended: Vec<String> =
        intended.iter().filter_map(|output| output.as_str().map(str::to_owned)).collect();
    Ok(if intended.is_empty() { located } else { intended })
}

fn failed_gates(facts: &Object<'_>) -> Result<Vec<String>, RunFailure> {
    let receipts = facts.get("gate_receipts").and_then(Value::as_array);
    let receipts = receipts.ok_or_else(|| invalid("gate_receipts are missing"))?;
    let mut failed = Vec::new();
    for receipt in receipts {
        let field = |name| receipt.get(name).and_then(Value::as_str);
        match (field("gate_id"), field("status")) {
            (Some(_), Some("PASS")) => {}
            (Some(gate), Some("FAIL")) => failed.push(gate.to_owned()),
            _ => return Err(invalid("a gate receipt lacks gate_id or status")),
        }
    }
    Ok(failed)
}

fn text(object: &Object<'_>, name: &str) -> Option<String> {
    let text = object.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn invalid(detail: impl Into<String>) -> RunFailure {
    RunFailure::new(Reason::RunFactsInvalid, detail)
}
