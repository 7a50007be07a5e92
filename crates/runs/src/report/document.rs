//! The report as a document.

use std::collections::BTreeMap;

use admit_contracts::ingestion_gate::{ArtifactPaths, utc};
use admit_core::Millis;
use admit_core::json::{Object, Value};
use admit_ledger::Run;
use admit_ledger::closures::{AmbiguityCounts, UnsettledCounts};

use super::{ReceiptTotals, SentTotals, Settings, Split, digest_of};

/// Input of a report.
pub(super) struct ReportInput {
    pub(super) run: Run,
    pub(super) tally: ReceiptTotals,
    pub(super) unsettled: UnsettledCounts,
    pub(super) sent: SentTotals,
    /// Events that were refused while the run was being closed.
    pub(super) refused_while_closing: u64,
    /// Reconciled ambiguous publishes.
    pub(super) ambiguities: AmbiguityCounts,
    /// Path of the closure, if the run is closed.
    pub(super) closure: Option<String>,
}

/// Builds the report, and the digest of everything in it except the time.
pub(super) fn report(
    facts: &ReportInput,
    paths: &ArtifactPaths,
    settings: &Settings,
    now: Millis,
) -> (Object<'static>, String) {
    let ReportInput { run, tally, unsettled, sent, ambiguities: reconciled, closure, .. } = facts;
    let scenario_runs: Vec<String> = tally.scenario_runs.iter().cloned().collect();
    let content = Object::from_iter([
        ("platform_run_id", Value::from(run.id.clone())),
        ("scenario_run_ids", scenario_runs.into()),
        ("state", run.state.as_str().into()),
        ("closure_ref", closure.clone().into()),
        ("ingress", ingress(tally, unsettled, sent).into()),
        ("in_flight", unsettled.in_work.into()),
        ("deliveries", run.counts.deliveries.into()),
        ("quarantine", quarantine(tally).into()),
        ("refused_while_closing", facts.refused_while_closing.into()),
        ("reasons", counts(&tally.reasons).into()),
        ("ambiguities", ambiguities(*reconciled).into()),
        ("policies", policies(tally).into()),
        ("notes", notes(tally).into()),
        ("producers", splits(&tally.producers).into()),
        ("outputs", splits(&tally.outputs).into()),
        ("ready", sent.to_object().into()),
        // Consumers behind the bus have their own reports.
        ("rtdl", Object::new().into()),
        ("archive", Object::new().into()),
        ("case_labels", Object::new().into()),
        ("evidence_refs", evidence(tally).into()),
        ("knobs", settings.knobs.clone().into()),
        ("basis", basis(&run.id, paths, settings).into()),
    ]);
    let digest = digest_of(&content);
    let mut report = Object::from_iter([("generated_at_utc", Value::from(utc(now)))]);
    report.extend(content);
    (report, digest)
}

/// Exactly the keys of the specification. A receipt whose file could not be written is in the
/// ledger, so it is counted as received already.
pub(crate) fn ingress(
    tally: &ReceiptTotals,
    unsettled: &UnsettledCounts,
    sent: &SentTotals,
) -> Object<'static> {
    Object::from_iter([
        ("sent", Value::from(sent.total)),
        ("received", tally.receipts.total().into()),
        ("admit", tally.receipts.admit.into()),
        ("duplicate", tally.receipts.duplicate.into()),
        ("quarantine", tally.receipts.quarantine.into()),
        ("publish_ambiguous", unsettled.ambiguous.into()),
        ("receipt_write_failed", tally.write_failed.into()),
    ])
}

/// Reconciliation results of publishes with an unknown outcome.
pub(crate) fn ambiguities(ambiguities: AmbiguityCounts) -> Object<'static> {
    Object::from_iter([
        ("found", Value::from(ambiguities.found)),
        ("absent", ambiguities.absent.into()),
        ("absent_never_arrived", ambiguities.never_arrived.into()),
    ])
}

/// All policies that decided in the run, with their number of receipts.
pub(crate) fn policies(tally: &ReceiptTotals) -> Vec<Object<'static>> {
    let policies = tally.policies.iter().map(|(policy, receipts)| {
        Object::from_iter([
            ("revision", Value::from(policy.revision.clone())),
            ("content_digest", policy.digest.clone().into()),
            ("receipts", (*receipts).into()),
        ])
    });
    policies.collect()
}

/// Notes that readers need to interpret the numbers.
pub(crate) fn notes(tally: &ReceiptTotals) -> Vec<String> {
    let policies = tally.policies.len();
    let changed = (policies > 1).then(|| {
        format!(
            "the policy changed in this run: {policies} policies decided; an event whose class \
             changed with it was admitted again under another dedupe key"
        )
    });
    changed.into_iter().collect()
}

/// Quarantines of a run by state.
pub(crate) fn quarantine(tally: &ReceiptTotals) -> Object<'static> {
    Object::from_iter([
        ("open", Value::from(tally.open.count)),
        ("superseded", tally.superseded.into()),
        ("released", counts(&tally.released).into()),
    ])
}

pub(crate) fn counts(counts: &BTreeMap<String, u64>) -> Object<'static> {
    counts.iter().map(|(name, count)| (name.clone(), Value::from(*count))).collect()
}

pub(crate) fn splits(splits: &BTreeMap<String, Split>) -> Object<'static> {
    let split = |split: &Split| {
        Object::from_iter([
            ("admit", Value::from(split.admit)),
            ("duplicate", split.duplicate.into()),
            ("quarantine", split.quarantine.into()),
        ])
    };
    splits.iter().map(|(name, of)| (name.clone(), Value::from(split(of)))).collect()
}

fn evidence(tally: &ReceiptTotals) -> Object<'static> {
    Object::from_iter([
        ("receipt_refs_sample", Value::from(tally.receipt_refs.clone())),
        ("quarantine_refs_sample", tally.quarantine_refs.clone().into()),
        ("component_reconciliation_refs", Vec::<String>::new().into()),
    ])
}

fn basis(run: &str, paths: &ArtifactPaths, settings: &Settings) -> Object<'static> {
    // The report does not resolve references.
    let resolution = ["attempted", "resolved", "denied", "allowlist_size"];
    let resolution: Object<'static> =
        resolution.into_iter().map(|name| (name, Value::from(0))).collect();
    Object::from_iter([
        ("profile_path", Value::from(settings.profile.clone())),
        ("ig_admission_locator", settings.locator.clone().into()),
        ("run_prefix", paths.of_run(run, "").into()),
        ("provenance", settings.provenance.clone().into()),
        ("evidence_ref_resolution", resolution.into()),
    ])
}

/// Removes everything from a URL that could be a secret: user, password and query.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.split(['?', '#']).next().unwrap_or_default().to_owned();
    };
    let (plain, beyond) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    if beyond.contains('@') && !plain.contains('@') {
        // Ambiguous: a query with an @, or a password with a ?.
        return format!("{scheme}://(hidden)");
    }
    // A password may contain anything, including slashes; what follows the last @ is not part of
    // it.
    format!("{scheme}://{}", plain.rsplit('@').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locators_contain_no_secrets() {
        for (url, plain) in [
            ("sqlite:", "sqlite:"),
            ("postgres://u:s3cret@db:5432/admit?password=s3cret", "postgres://db:5432/admit"),
            ("postgres://u:p@ss@db/admit", "postgres://db/admit"),
            ("postgres://u:a/b@db/admit#s3cret", "postgres://db/admit"),
            ("postgres://db", "postgres://db"),
            ("postgres://u:s3?cret@db/admit", "postgres://(hidden)"),
            ("postgres://u:s3#cret@db/admit", "postgres://(hidden)"),
            ("postgres://db/admit?user=a&password=s3@cret", "postgres://(hidden)"),
        ] {
            assert_eq!(redacted(url), plain);
        }
    }
}
