//! The golden engine pack, and the request for its run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Status message of a run that is READY and published.
pub(crate) const READY_MESSAGE: &str = "ready, and READY is on the control bus";

/// Path of the golden pack.
pub(crate) fn golden() -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runs/tests/fixtures/engine_run");
    place.canonicalize().unwrap()
}

/// Request for the run of the golden pack, with the pack at `root`.
pub(crate) fn request(root: &str) -> Value {
    let receipt = fs::read_to_string(golden().join("run_receipt.json")).unwrap();
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    json!({
        "run_equivalence_key": "parity_demo_1",
        "manifest_fingerprint": receipt["manifest_fingerprint"],
        "parameter_hash": receipt["parameter_hash"],
        "seed": 42,
        "scenario": { "scenario_id": "baseline_v1" },
        "window": {
            "window_start_utc": "2026-01-01T00:00:00Z",
            "window_end_utc": "2026-01-02T00:00:00Z",
            "window_tz": "UTC",
        },
        "engine_run_root": root,
    })
}
