//! Alert rules and dashboard under `deploy/`: valid, tested, and about metrics that a gate has.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::gate::{Gate, Launch};
use crate::support::machine::{run, text};
use crate::support::prometheus::{Prometheus, deployed, is_installed, test_rules};
use crate::support::{TIMEOUT, pages, wait_for};

const RULES: &str = "prometheus/alert-rules.yaml";
const RULE_TESTS: &str = "prometheus/alert-rules.test.yaml";
const DASHBOARD: &str = "grafana/admit.json";

fn read(name: &str) -> String {
    fs::read_to_string(deployed(name)).unwrap()
}

/// A gate with a disk reserve, so that it has the metrics about that.
fn gate_with_reserve(data: &tempfile::TempDir) -> Gate {
    Launch::on(data.path()).variable("ADMIT_LEDGER__FREE_BYTES_MIN", "1").start()
}

/// Metric families of a gate.
fn families(gate: &Gate) -> BTreeSet<String> {
    let page = gate.client().send("GET", "/metrics", &[], b"").unwrap();
    let page = String::from_utf8(page.body).unwrap();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Metric families that a text names.
fn named_families(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("admit_"))
        .map(|word| {
            let parts = ["_bucket", "_sum", "_count"];
            parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word).to_owned()
        })
        .collect()
}

/// Titles and expressions of the dashboard's panels, with the variables that Grafana replaces.
fn dashboard_queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let variables =
        [("$__rate_interval", "10s"), ("$__range", "1m"), ("$job", "admit"), ("$instance", ".+")];
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap().to_owned();
            let expression =
                variables.iter().fold(expression, |text, (name, value)| text.replace(name, value));
            assert!(!expression.contains('$'), "an unknown variable: {expression}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), expression));
        }
    }
    queries
}

/// Names of the alerts, in the order of their file.
fn alerts() -> Vec<String> {
    let name = |line: &str| line.trim().strip_prefix("- alert: ").map(str::to_owned);
    read(RULES).lines().filter_map(name).collect()
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_exists() {
    let data = tempfile::tempdir().unwrap();
    let gate = gate_with_reserve(&data);
    let existing = families(&gate);
    for name in [RULES, RULE_TESTS, DASHBOARD] {
        let named = named_families(&read(name));
        assert!(named.len() > 5, "{name}: {named:?}");
        let unknown: Vec<&String> = named.difference(&existing).collect();
        assert!(unknown.is_empty(), "{name} names metrics that a gate does not have: {unknown:?}");
    }
    let shown = named_families(&read(DASHBOARD));
    let not_shown: Vec<&String> = existing.difference(&shown).collect();
    assert!(not_shown.is_empty(), "no panel shows {not_shown:?}");
    gate.stop();
}

#[test]
fn every_metric_of_a_gate_is_in_the_table_of_operations() {
    let data = tempfile::tempdir().unwrap();
    let gate = gate_with_reserve(&data);
    let page = fs::read_to_string(pages::root().join("docs/operations.md")).unwrap();
    let documented = named_families(&page);
    let missing: Vec<String> = families(&gate).difference(&documented).cloned().collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
    gate.stop();
}

#[test]
fn every_alert_is_tested_and_explained() {
    let (tests, page) = (read(RULE_TESTS), pages::root().join("docs/operations.md"));
    let page = fs::read_to_string(page).unwrap();
    let alerts = alerts();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
        assert!(page.contains(&format!("| `{alert}` |")), "{alert} is not in docs/operations.md");
    }
}

#[test]
fn the_alert_rules_pass_their_tests() {
    if !is_installed() {
        return;
    }
    run("promtool", ["check", "rules", text(&deployed(RULES))]).unwrap();
    test_rules(&deployed(RULE_TESTS)).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let broken = read(RULES).replace("admit_ledger_healthy == 0", "admit_ledger_healthy == 7");
    fs::write(at("alert-rules.yaml"), broken).unwrap();
    fs::copy(deployed(RULE_TESTS), at("tests.yaml")).unwrap();
    let failed = test_rules(&at("tests.yaml"));
    assert!(failed.is_err(), "a broken rule passes the tests: {failed:?}");
}

#[test]
fn prometheus_scrapes_the_gate_and_evaluates_every_rule_and_query() {
    if !is_installed() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let gate = gate_with_reserve(&data);
    let prometheus = Prometheus::scraping(gate.address());
    for body in [r#"{"total":5}"#, r#"{"total":5}"#, r#"{"total":6}"#] {
        let headers = [("Idempotency-Key", "a")];
        gate.client().send("POST", "/v1/events", &headers, body.as_bytes()).unwrap();
    }
    for (title, query) in dashboard_queries() {
        // Panels of errors show only the codes that occur.
        let may_be_empty = query.ends_with("> 0");
        wait_for(&format!("a value of {title}: {query}"), TIMEOUT, || {
            let values =
                prometheus.query(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
            (may_be_empty || !values.is_empty()).then_some(())
        });
    }
    wait_for("the conflict is an alert", TIMEOUT, || {
        let firing =
            r#"ALERTS{alertname="AdmitConflicts",alertstate="firing",door="events/default"}"#;
        prometheus.query(firing).unwrap().pop()
    });
    wait_for("every rule was evaluated", TIMEOUT, || {
        prometheus.query("prometheus_rule_evaluations_total > 0").unwrap().pop()
    });
    let failures = prometheus.query("prometheus_rule_evaluation_failures_total > 0").unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    let firing = prometheus.query(r#"ALERTS{alertstate="firing",severity!="info"}"#).unwrap();
    assert!(firing.is_empty(), "a healthy gate has alerts: {firing:?}");
    gate.stop();
}
