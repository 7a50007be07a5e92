//! The systemd units, the container file and the workflows do what they promise, as far as this machine can run them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::gate::{Launch, binary};
use crate::support::machine::{self, command, has, run, skip, text};
use crate::support::prometheus::deployed;
use crate::support::strace::{self, Trace};
use crate::support::{TIMEOUT, pages, python, wait_for};

/// Units under `deploy/`.
const UNITS: &[&str] = &["admit.service", "admit-edge.service"];

/// Highest exposure of a unit, in tenths: `systemd-analyze security` rates from 0.0 to 10.0.
const EXPOSURE_MAX: &str = "--threshold=20";

/// Whether `systemd-analyze` can rate a file; if not, the test is reported as skipped.
fn systemd_is_available() -> bool {
    // Before version 250 there is no `--offline`.
    let works = has("systemd-analyze")
        && run("systemd-analyze", ["security", "--offline=yes", "--help"]).is_ok();
    if !works {
        skip("systemd-analyze is not installed, or too old");
    }
    works
}

#[test]
fn the_systemd_units_are_valid_and_locked_down() {
    if !systemd_is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let rated = run(
            "systemd-analyze",
            ["security", "--offline=yes", EXPOSURE_MAX, text(&deployed(unit))],
        );
        rated.unwrap_or_else(|error| panic!("{unit} is exposed too much: {error}"));
        let installed = folder.path().join(unit);
        let unit_text = fs::read_to_string(deployed(unit)).unwrap();
        let program = binary().into_string().unwrap();
        fs::write(&installed, unit_text.replace("/usr/local/bin/admit", &program)).unwrap();
        let checked = command("systemd-analyze")
            .args(["verify", "--man=no", text(&installed)])
            .output()
            .unwrap();
        // An unknown directive is a warning only.
        let ours = String::from_utf8(checked.stderr).unwrap();
        let ours: Vec<&str> = ours.lines().filter(|line| line.contains(unit)).collect();
        assert!(checked.status.success() && ours.is_empty(), "{ours:?}");
    }
}

/// System calls of a filter of systemd, such as `@system-service` or `read`.
fn system_calls(filter: &str) -> BTreeSet<String> {
    if !filter.starts_with('@') {
        return BTreeSet::from([filter.to_owned()]);
    }
    let listed = run("systemd-analyze", ["syscall-filter", filter]).unwrap();
    let lines = listed.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).flat_map(system_calls).collect()
}

/// System calls that a unit allows.
fn allowed_by(unit: &str) -> BTreeSet<String> {
    let unit = fs::read_to_string(deployed(unit)).unwrap();
    let mut allowed = BTreeSet::new();
    for filters in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (denies, filters) = match filters.strip_prefix('~') {
            Some(filters) => (true, filters),
            None => (false, filters),
        };
        for call in filters.split(' ').flat_map(system_calls) {
            if denies {
                allowed.remove(&call)
            } else {
                allowed.insert(call)
            };
        }
    }
    allowed
}

/// Names of the system calls in a trace: `PID name(…`.
fn traced_calls(trace: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let (name, _) = call.trim_start().split_once('(')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.chars().all(is_name).then(|| name.to_owned())
    };
    trace.lines().filter_map(name).collect()
}

#[test]
fn a_gate_makes_only_system_calls_that_its_unit_allows() {
    if !systemd_is_available() || !strace::is_available() {
        return;
    }
    let mut allowed = allowed_by("admit.service");
    assert!(allowed.contains("fdatasync") && !allowed.contains("mount"), "{allowed:?}");
    if machine::is_root() {
        // SQLite changes owners only as root, which a gate under its unit is not.
        allowed.insert("fchown".to_owned());
    }
    let data = tempfile::tempdir().unwrap();
    let trace = Trace::into(data.path());
    let gate = Launch::on(&data.path().join("gate")).under(trace.wrapper(&[])).start();
    for path in ["/v1/events", "/v1/intents", "/v1/ingest/push", "/v1/ingress", "/plugin/events"] {
        let headers = [("Idempotency-Key", "a")];
        gate.client().send("POST", path, &headers, b"{}").unwrap();
    }
    gate.client().send("GET", "/metrics", &[], b"").unwrap();
    gate.stop();
    let made = traced_calls(&trace.read());
    assert!(made.contains("fdatasync") && made.contains("accept4"), "{made:?}");
    let denied: Vec<&String> = made.difference(&allowed).collect();
    assert!(denied.is_empty(), "the unit denies {denied:?}");
}

/// Arguments of an instruction of the container file, in its JSON form.
fn instruction(name: &str) -> Vec<String> {
    let file = fs::read_to_string(deployed("Containerfile")).unwrap();
    let line = file.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("the container file has no {name}"));
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_health_check_of_the_container_follows_the_gate() {
    // The first CMD of the file is that of the health check.
    let check = instruction("CMD");
    assert_eq!(check[0], "perl");
    if !has("perl") {
        skip("perl is not installed");
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let socket = data.path().join("admit.sock");
    let is_healthy = || {
        let script = check[3].replace("/var/lib/admit/admit.sock", text(&socket));
        command(&check[0]).args(&check[1..3]).arg(script).status().unwrap().success()
    };
    assert!(!is_healthy(), "healthy before the start");
    let gate = Launch::on(data.path()).start();
    assert!(is_healthy(), "not healthy while the gate runs");
    gate.stop();
    assert!(!is_healthy(), "healthy after the end");
}

#[test]
fn a_gate_below_its_disk_reserve_is_not_healthy() {
    if !has("perl") {
        skip("perl is not installed");
        return;
    }
    let check = instruction("CMD");
    let data = tempfile::tempdir().unwrap();
    let reserve = i64::MAX.to_string();
    let gate = Launch::on(data.path())
        .variable("ADMIT_LEDGER__FREE_BYTES_MIN", &reserve)
        .start_without_probe();
    let socket = data.path().join("admit.sock");
    let script = check[3].replace("/var/lib/admit/admit.sock", text(&socket));
    wait_for("the gate is alive and not ready", TIMEOUT, || {
        let response = gate.client().send("GET", "/readyz", &[], b"").ok()?;
        (response.status == 503 && socket.exists()).then_some(())
    });
    let checked = command(&check[0]).args(&check[1..3]).arg(script).status().unwrap();
    assert!(!checked.success(), "healthy, though /readyz is not 200");
    gate.stop();
}

#[test]
fn the_container_file_has_no_lint() {
    let Some(hadolint) = python::program("hadolint") else { return };
    run(text(&hadolint), [text(&deployed("Containerfile"))]).unwrap();
}

/// Checks files against a schema that check-jsonschema contains.
fn check_schema(schema: &str, files: &[&Path]) -> Option<Result<(), String>> {
    let check = python::program("check-jsonschema")?;
    let checked =
        command(text(&check)).args(["--builtin-schema", schema]).args(files).output().unwrap();
    let report = String::from_utf8_lossy(&checked.stdout).into_owned();
    Some(if checked.status.success() { Ok(()) } else { Err(report) })
}

#[test]
fn the_workflows_are_valid() {
    const SCHEMA: &str = "vendor.github-workflows";
    let folder = pages::root().join(".github/workflows");
    let (check, release) = (folder.join("ci.yml"), folder.join("release.yml"));
    let Some(checked) = check_schema(SCHEMA, &[&check, &release]) else { return };
    checked.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("ci.yml");
    let workflow = fs::read_to_string(&check).unwrap();
    assert!(workflow.contains("- run: .ci/run\n"));
    fs::write(&broken, workflow.replace("runs-on:", "run-on:")).unwrap();
    assert!(check_schema(SCHEMA, &[&broken]).unwrap().is_err(), "a broken workflow is valid");
}

#[test]
fn the_compose_file_is_valid() {
    let compose = deployed("three-gates/compose.yaml");
    let Some(checked) = check_schema("vendor.compose-spec", &[&compose]) else { return };
    checked.unwrap();
}
