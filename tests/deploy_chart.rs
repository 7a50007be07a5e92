//! The Helm chart renders objects that Kubernetes accepts, with a config that a gate accepts.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::support::gate;
use crate::support::machine::{command, not_applicable, run, text};
use crate::support::prometheus::deployed;
use crate::support::python;

/// Example values of the chart.
const EXAMPLES: &[&str] = &["one-gate-values.yaml", "three-gates-values.yaml"];

/// Path of helm; `None` (reported as skipped) if it is missing.
fn helm() -> Option<PathBuf> {
    if cfg!(not(target_arch = "x86_64")) {
        not_applicable("the Python package with helm is for x86_64 only");
        return None;
    }
    python::program("helm")
}

fn chart() -> PathBuf {
    deployed("helm/admit")
}

/// Renders the chart with example values and further settings; `None` without helm.
fn render(example: &str, settings: &[&str]) -> Option<Result<String, String>> {
    let helm = helm()?;
    let values = chart().join("ci").join(example);
    let mut command = command(text(&helm));
    command.args(["template", "gate", text(&chart()), "--values", text(&values)]);
    let rendered = settings
        .iter()
        .fold(&mut command, |command, setting| command.args(["--set", setting]))
        .output()
        .unwrap();
    let utf8 = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Some(match rendered.status.success() {
        true => Ok(utf8(rendered.stdout)),
        false => Err(utf8(rendered.stderr)),
    })
}

/// Documents of a YAML text.
fn documents(yaml: &str) -> Vec<Value> {
    const TO_JSON: &str =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let python = python::program("python3").unwrap();
    let mut parser = command(text(&python))
        .args(["-c", TO_JSON])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(yaml.as_bytes()).unwrap();
    let parsed = parser.wait_with_output().unwrap();
    serde_json::from_slice(&parsed.stdout).unwrap()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap()
}

#[test]
fn the_chart_renders_what_kubernetes_accepts() {
    let Some(helm) = helm() else { return };
    let validate = python::program("kubernetes-validate").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects.yaml");
    for example in EXAMPLES {
        let values = chart().join("ci").join(example);
        run(text(&helm), ["lint", "--strict", text(&chart()), "--values", text(&values)]).unwrap();
        let rendered = render(example, &[]).unwrap().unwrap();
        fs::write(&objects, &rendered).unwrap();
        run(text(&validate), ["--strict", text(&objects)]).unwrap();

        fs::write(&objects, rendered.replace("volumeMounts:", "volumeMount:")).unwrap();
        let refused = run(text(&validate), ["--strict", text(&objects)]);
        assert!(refused.is_err(), "{example}: an unknown field is valid");
    }
}

/// Creates the files of secrets that a config or a variable names, below `folder`.
fn create_secrets(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["gate".to_owned()]).unwrap();
    for name in ["admit/shop.key", "ledger/password", "ledger/ca.pem", "tls/tls.crt", "tls/tls.key"]
    {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = match name {
            "ledger/ca.pem" | "tls/tls.crt" => made.cert.pem(),
            "tls/tls.key" => made.signing_key.serialize_pem(),
            _ => "k".repeat(32),
        };
        fs::write(path, content).unwrap();
    }
}

#[test]
fn a_gate_accepts_the_config_of_the_chart() {
    for example in EXAMPLES {
        let Some(rendered) = render(example, &[]) else { return };
        let folder = tempfile::tempdir().unwrap();
        create_secrets(folder.path());
        let secrets = text(folder.path());
        let documents = documents(&rendered.unwrap().replace("/run/secrets", secrets));
        let config = of_kind(&documents, "ConfigMap")["data"]["admit.toml"].as_str().unwrap();
        let path = folder.path().join("admit.toml");
        fs::write(&path, config).unwrap();
        let pod = &of_kind(&documents, "StatefulSet")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let checked = gate::admit(["config", "check", text(&path)]).output().unwrap();
        assert!(
            checked.status.success(),
            "{example}: {}",
            String::from_utf8_lossy(&checked.stderr)
        );
        // Only this loads the variables too.
        let mut effective = gate::admit(["config", "show", "--effective", "--config", text(&path)]);
        for variable in container["env"].as_array().unwrap() {
            // A reference to a field is the name of the pod.
            let value = variable["value"].as_str().unwrap_or("gate-admit-0");
            effective.env(variable["name"].as_str().unwrap(), value);
        }
        let shown = effective.output().unwrap();
        let stderr = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success(), "{example}: {stderr}\n{config}");
        assert!(String::from_utf8_lossy(&shown.stdout).contains("listen = \"0.0.0.0:8080\""));
        let arguments: Vec<&str> =
            container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let unit = fs::read_to_string(deployed("admit.service")).unwrap();
        assert!(unit.contains(&format!("/admit {}\n", arguments.join(" "))), "{arguments:?}");
    }
}

#[test]
fn the_chart_refuses_values_that_would_lose_events() {
    let refused = [
        ("replicas=2", "set ledger.url"),
        ("persistence.enabled=false", "would be lost"),
        ("principals=null", "principals"),
        ("replica=2", "replica is not allowed"),
        ("ledger.tlsCa=true", "ledger.existingSecret"),
    ];
    for (setting, reason) in refused {
        let Some(rendered) = render(EXAMPLES[0], &[setting]) else { return };
        let error = rendered.expect_err(setting);
        assert!(error.contains(reason), "{setting}: {error}");
    }
}
