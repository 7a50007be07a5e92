//! Generates a pack with any number of rows, and a READY for it, for streaming benchmarks:
//!
//! ```text
//! cargo run --release -p admit-runs --example synthetic_pack -- \
//!     --rows 1000000 --seed 7 --out pack --data admit-data
//! ```
//!
//! `--rows` is the total of all four outputs. `--data` writes the facts of a run to the artifacts of that
//! data folder and publishes its READY to the bus there; no gate may be running. `--run` sets the platform
//! run, `--part-rows` and `--group-rows` the size of part files and row groups, and `--from` another pack
//! to copy the gate bundles from.

mod pack;

use std::path::PathBuf;
use std::sync::Arc;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_artifacts::{Artifacts as _, File};
use admit_bus::file::{self, FileBus};
use admit_bus::{Bus as _, Message, PublishOutcome};
use admit_core::Millis;
use admit_core::hash::sha256_hex;

use pack::SyntheticPack;

type CycleOutcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> CycleOutcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|word| word == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| -> CycleOutcome<u64> {
        Ok(value(name).map(|text| text.parse()).transpose()?.unwrap_or(default))
    };
    let out = PathBuf::from(value("--out").ok_or("--out DIR is missing")?);
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/engine_run");
    let from = value("--from").unwrap_or_else(|| fixture.to_owned());
    let rows = number("--rows", 1_000_000)?.div_ceil(4);
    let synthetic = SyntheticPack {
        rows,
        part_rows: number("--part-rows", 250_000)?,
        group_rows: number("--group-rows", 50_000)?,
        seed: number("--seed", 7)?,
        per_flow: 5,
    };
    synthetic.write(&out, from.as_ref())?;
    if let Some(data) = value("--data") {
        let run = value("--run").unwrap_or_else(|| "platform_20260212T085637Z".to_owned());
        publish_ready(&PathBuf::from(data), &run, &std::fs::canonicalize(&out)?.to_string_lossy())?;
    }
    Ok(())
}

/// Writes the facts to the artifacts and publishes READY.
fn publish_ready(data: &std::path::Path, run: &str, engine_root: &str) -> CycleOutcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let artifacts = LocalArtifacts::open(local::Options::new(data.join("artifacts")))?;
        let path = format!("fraud-platform/{run}/sr/run_facts_view/synthetic.json");
        let facts = File::new(path.clone(), pack::facts(run, engine_root));
        for put in artifacts.put_if_absent(vec![facts]).await {
            put?;
        }
        let bus = FileBus::open(file::Options::new(data.join("bus")))?;
        let message_id = sha256_hex(format!("ready|{run}|{engine_root}").as_bytes());
        let message = Message {
            topic: Arc::from("fp.bus.control.v1"),
            partition_key: "df5647f07d4f430de9cfde91f3a454b6".to_owned(),
            dedupe_key: message_id.clone(),
            payload: pack::ready(run, &path, engine_root, &message_id).into(),
            at: Millis(1_770_886_597_000),
        };
        match bus.publish(vec![message]).await.pop() {
            Some(PublishOutcome::Committed(_)) => Ok(()),
            other => Err(format!("READY was not published: {other:?}").into()),
        }
    })
}
