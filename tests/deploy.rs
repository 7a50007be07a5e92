//! The example files under `deploy/` are valid.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::gate;
use crate::support::machine::text;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Copies a config into a folder together with the secret files it refers to.
fn with_secrets(config: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = rcgen::generate_simple_self_signed(["db.internal".to_owned()]).unwrap();
    for name in ["ledger-ca.pem", "gate.pem"] {
        fs::write(at(name), made.cert.pem()).unwrap();
    }
    fs::write(at("gate.key"), made.signing_key.serialize_pem()).unwrap();
    fs::write(at("ledger.password"), "a password\n").unwrap();
    for name in ["arena-1", "ops", "shop"] {
        fs::write(at(&format!("{name}.key")), format!("{name}-{}", "k".repeat(32))).unwrap();
    }
    let path = at("admit.toml");
    fs::copy(deploy().join(config), &path).unwrap();
    (folder, path)
}

#[test]
fn every_example_config_is_valid() {
    for config in ["one-gate.toml", "three-gates/admit.toml"] {
        let (_folder, path) = with_secrets(config);
        let checked = gate::admit(["config", "check", text(&path)]).output().unwrap();
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{config}: {stderr}");
        let mut show = gate::admit(["config", "show", "--effective", "--config", text(&path)]);
        let shown = show.env("ADMIT_LEDGER__GATE_ID", "gate-a").output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("gate_id = \"gate-a\"") && !shown.contains("a password"), "{shown}");
    }
}

#[test]
fn the_example_config_accepts_key_files_of_admit_keys_new() {
    let (folder, path) = with_secrets("one-gate.toml");
    for name in ["arena-1", "ops"] {
        let file = fs::File::create(folder.path().join(format!("{name}.key"))).unwrap();
        assert!(gate::admit(["keys", "new"]).stdout(file).status().unwrap().success());
    }
    let checked = gate::admit(["config", "check", text(&path)]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_systemd_unit_and_the_container_use_existing_flags() {
    let read = |name: &str| fs::read_to_string(deploy().join(name)).unwrap();
    let (unit, container) = (read("admit.service"), read("Containerfile"));
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let unit: Vec<&str> = started.split(' ').skip(1).collect();
    let arguments = container.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let container: Vec<String> = serde_json::from_str(arguments).unwrap();
    assert_eq!(unit, container, "unit and container must use the same arguments");
    let help = gate::admit(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert_eq!(unit[0], "serve");
    for flag in unit.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn every_gate_of_the_example_has_its_own_gate_id() {
    let compose = fs::read_to_string(deploy().join("three-gates/compose.yaml")).unwrap();
    let mut names: Vec<&str> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("environment: { ADMIT_LEDGER__GATE_ID: "))
        .map(|name| name.trim_end_matches(" }"))
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), all), (3, 3), "{names:?}");
}
