//! Consistency check of the stored documents of a scenario run: recomputes their hashes.

use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value};
use admit_ledger::scenario_runs::ScenarioRun;

use super::documents::{FACTS, PLAN, SIGNAL, parse};
use super::identity;

/// Finds contradictions in the documents of a run; empty if they are consistent.
pub fn find_contradictions(run: &ScenarioRun) -> Vec<String> {
    let mut wrong = Vec::new();
    let (plan, facts, signal) = (
        parsed(run, PLAN, &mut wrong),
        parsed(run, FACTS, &mut wrong),
        parsed(run, SIGNAL, &mut wrong),
    );
    if let Some(plan) = &plan
        && hash_of(plan, "plan_hash") != Some(plan_hash(plan))
    {
        wrong.push(format!("plan_hash of run {} does not match its plan", run.run_id));
    }
    let Some(facts) = &facts else { return wrong };
    let bundle_hash = hash_of(facts, "bundle_hash");
    if bundle_hash != Some(bundle_hash_of(facts)) {
        wrong.push(format!("bundle_hash of run {} does not match its facts", run.run_id));
    }
    if let Some(signal) = &signal
        && hash_of(signal, "bundle_hash") != bundle_hash
    {
        wrong.push(format!(
            "bundle_hash differs between the signal and the facts of run {}",
            run.run_id
        ));
    }
    for receipt in facts.get("instance_receipts").and_then(Value::as_array).unwrap_or_default() {
        let path = receipt.get("ref").and_then(Value::as_str);
        let digest = receipt.get("digest").and_then(Value::as_str);
        let stored = run.documents.iter().find(|document| Some(document.path.as_str()) == path);
        if stored.map(|document| sha256_hex(document.text.as_bytes())).as_deref() != digest {
            let path = path.unwrap_or("a receipt without a path");
            wrong.push(format!(
                "{path} does not match its digest in the facts of run {}",
                run.run_id
            ));
        }
    }
    wrong
}

/// Parses a document of the run, if it exists.
fn parsed(run: &ScenarioRun, kind: &str, wrong: &mut Vec<String>) -> Option<Value<'static>> {
    let document = run.document(kind)?;
    let parsed = parse(&document.text).map(Value::into_owned);
    if parsed.is_none() {
        wrong.push(format!("{kind} of run {} is not valid JSON", run.run_id));
    }
    parsed
}

fn hash_of(document: &Value<'_>, name: &str) -> Option<String> {
    document.get(name)?.as_str().map(str::to_owned)
}

fn part<'v>(document: &'v Value<'v>, names: &[&'static str]) -> Object<'v> {
    let value = |name: &&'static str| (*name, document.get(name).cloned().unwrap_or(Value::Null));
    Object::from_iter(names.iter().map(value))
}

fn plan_hash(plan: &Value<'_>) -> String {
    const FIELDS: &[&str] = &[
        "run_id",
        "policy_rev",
        "strategy",
        "intended_outputs",
        "required_gates",
        "attempt_limit",
    ];
    identity::spaced_hash(part(plan, FIELDS))
}

fn bundle_hash_of(facts: &Value<'_>) -> String {
    const FIELDS: &[&str] = &["locators", "gate_receipts", "instance_receipts", "policy_rev"];
    identity::compact_hash(&part(facts, FIELDS))
}
