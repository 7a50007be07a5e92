//! The part of `admit verify` that makes records again: events from their bodies, links and merged
//! values from the events.

use std::sync::Arc;

use admit_contracts::rounds::{self, DOOR};
use admit_core::json;
use admit_ledger::verify::{Found, RecordsChecked, Telling, Verifier, VerifyError};

use crate::config::Config;

/// Checks the records of rounds by the window that the config names.
pub(super) fn check(
    ledger: &Verifier,
    config: &Config,
    skipped: &mut Vec<String>,
    found: &mut Found<'_>,
) -> Result<RecordsChecked, VerifyError> {
    let contract = match config.doors.rounds.contract(config.limits.json_depth_max) {
        Ok(contract) => contract,
        Err(error) => {
            skipped.push(format!("the records of {DOOR}, because {error}"));
            return Ok(RecordsChecked::default());
        }
    };
    let policy = Arc::clone(contract.policy());
    let checked = ledger.records((DOOR, &policy), &mut retell, found)?;
    let lacking = [
        (checked.crowded, "links, because too many events lie around their events"),
        (
            checked.other_window,
            "links, because doors.rounds.match_window_minutes was another one when they were decided",
        ),
        (checked.undecided, "links, because an event around their events cannot be read"),
        (checked.unmerged, "records, because an event of theirs cannot be read"),
    ];
    let lacking = lacking.iter().filter(|(count, _)| *count > 0);
    skipped.extend(lacking.map(|(count, what)| format!("{count} {what}")));
    Ok(checked)
}

/// The event that a body gives.
fn retell(telling: &Telling<'_>) -> Option<admit_core::record::SourceEvent> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(telling.facts.as_bytes(), &limits) {
        Ok(json::Value::Object(facts)) => rounds::retell(DOOR, &facts, telling.body),
        Ok(_) | Err(_) => None,
    }
}
