//! Records of the rounds door: events are rebuilt from their bodies, links and merged values from the events.

use std::sync::Arc;

use admit_contracts::rounds::{self, DOOR};
use admit_core::json;
use admit_ledger::verify::{DisagreementSink, RebuildInput, RecordsChecked, Verifier, VerifyError};

use crate::config::Config;

/// Verifies the records of the rounds door, with the configured match window.
pub(super) fn check(
    ledger: &Verifier,
    config: &Config,
    skipped: &mut Vec<String>,
    found: &mut DisagreementSink<'_>,
) -> Result<RecordsChecked, VerifyError> {
    let contract = match config.doors.rounds.contract(config.limits.json_depth_max) {
        Ok(contract) => contract,
        Err(error) => {
            skipped.push(format!("the records of {DOOR}: {error}"));
            return Ok(RecordsChecked::default());
        }
    };
    let policy = Arc::clone(contract.policy());
    let checked = ledger.records((DOOR, &policy), &mut rebuild, found)?;
    let lacking = [
        (checked.crowded, "links, because they have too many candidate events"),
        (
            checked.other_window,
            "links, because doors.rounds.match_window_minutes had another value when they were resolved",
        ),
        (checked.undecided, "links, because a candidate event is unreadable"),
        (checked.unmerged, "records, because an event of them is unreadable"),
        (
            checked.older_merges,
            "records that differ, because an earlier version merged them by its own rule",
        ),
        (
            checked.older_fields,
            "lists of fields of events, because an earlier version read them from the bodies",
        ),
    ];
    let lacking = lacking.iter().filter(|(count, _)| *count > 0);
    skipped.extend(lacking.map(|(count, what)| format!("{count} {what}")));
    Ok(checked)
}

/// Rebuilds the event from its body.
fn rebuild(input: &RebuildInput<'_>) -> Option<admit_core::entity::SourceEvent> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(input.facts.as_bytes(), &limits) {
        Ok(json::Value::Object(facts)) => rounds::rebuild(DOOR, &facts, input.body),
        Ok(_) | Err(_) => None,
    }
}
