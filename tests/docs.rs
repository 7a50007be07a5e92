//! The pages of the documentation can be followed literally: commands run and print what the page shows, configs are
//! valid, and JSON is JSON.

use std::fs;

use crate::support::gate;
use crate::support::machine::{has, skip, text};
use crate::support::pages::{Session, assert_shown, blocks, pages};
use crate::support::{python, sql};

/// A test for each page: its blocks of commands are run in order, on one gate.
macro_rules! followed {
    ($($test:ident: $page:literal $(after $before:literal)?,)*) => {
        /// Pages that are followed.
        const FOLLOWED: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                let before: &[&str] = &[$($before)?];
                follow($page, before.first().copied());
            }
        )*
    };
}

followed! {
    the_readme_can_be_followed: "README.md",
    the_page_of_closure_can_be_followed: "docs/closure.md" after "docs/runs.md",
    the_page_of_events_can_be_followed: "docs/doors/events.md",
    the_page_of_the_ingestion_gate_can_be_followed: "docs/doors/ingestion-gate.md",
    the_page_of_intents_can_be_followed: "docs/doors/intents.md",
    the_page_of_pixel_control_can_be_followed: "docs/doors/pixel-control.md",
    the_page_of_rounds_can_be_followed: "docs/doors/rounds.md",
    the_page_of_skyra_can_be_followed: "docs/doors/skyra.md",
    the_page_of_the_edge_agent_can_be_followed: "docs/edge.md",
    the_page_of_the_file_bus_can_be_followed: "docs/bus/file.md",
    the_page_of_the_ledger_can_be_followed: "docs/ledger.md",
    the_page_of_operations_can_be_followed: "docs/operations.md",
    the_page_of_runs_can_be_followed: "docs/runs.md",
    the_page_of_security_can_be_followed: "docs/security.md",
    the_page_of_the_streamer_can_be_followed: "docs/stream.md" after "docs/runs.md",
}

/// Blocks that are not run: the page, how the block starts, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("CONTRIBUTING.md", "cargo xtask test", "the test commands themselves"),
    ("docs/artifacts/s3.md", "aws configure", "needs an account"),
    ("docs/bus/kafka.md", "admit bench", "needs a broker"),
    ("docs/bus/kinesis.md", "admit bench", "needs an account"),
    ("docs/bus/nats.md", "admit bench", "needs a broker"),
    ("docs/deploy.md", "useradd", "installs a service, as root"),
    ("docs/deploy.md", "openssl req", "part of the installation"),
    ("docs/deploy.md", "cd deploy/three-gates", "changes owners, as root"),
    ("docs/deploy.md", "docker compose", "needs containers"),
    ("docs/deploy.md", "docker build", "needs containers; see deploy_files"),
    ("docs/deploy.md", "helm install", "needs a cluster; see deploy_chart"),
    ("docs/deploy.md", "kubectl exec", "needs a cluster"),
    ("docs/deploy.md", "createuser", "needs a database server"),
    ("docs/deploy.md", "admit ledger copy", "needs a database; see ledger_copy"),
    ("docs/doors/skyra.md", "envelope=", "needs grpcurl; see skyra_clients"),
    ("docs/doors/skyra.md", "buf curl", "needs buf; see skyra_clients"),
    ("docs/operations.md", "promtool check", "needs Prometheus; see monitoring"),
    ("docs/operations.md", "install -D", "part of the installation of Grafana"),
    ("docs/operations.md", "fuser", "lists processes of the whole machine"),
    ("docs/operations.md", "systemctl stop admit\nexport", "needs a database; see ledger_copy"),
    ("docs/performance.md", "cargo run --release -- bench", "takes minutes; see bench"),
    ("docs/stream.md", "cargo run --release -p", "builds another program"),
];

/// Why a block is not run, if so.
fn not_run(page: &str, commands: &str) -> Option<&'static str> {
    NOT_RUN
        .iter()
        .find(|(of, start, _)| *of == page && commands.starts_with(start))
        .map(|(_, _, reason)| *reason)
}

/// Runs the commands of a page, after the first block of commands of the page `before`.
fn follow(page: &str, before: Option<&str>) {
    if sql::skip_on_postgres() {
        return;
    }
    if let Some(missing) = ["curl", "sqlite3"].into_iter().find(|program| !has(program)) {
        skip(&format!("{missing} is not installed"));
        return;
    }
    let mut session = Session::new();
    if let Some(before) = before {
        let first = blocks(before).into_iter().find(|block| block.language == "sh").unwrap();
        session.run(&first.text);
    }
    for block in blocks(page) {
        if block.language == "sh" && not_run(page, &block.text).is_none() {
            let output = session.run(&block.text);
            if let Some(shown) = &block.output {
                assert_shown(page, &block.text, shown, &output);
            }
        }
    }
    session.end();
}

#[test]
fn every_block_of_commands_is_run_or_listed_with_a_reason() {
    for page in pages() {
        for block in blocks(&page) {
            assert!(
                !block.language.is_empty(),
                "{page}: a block without a language: {}",
                block.text
            );
            let is_run = FOLLOWED.contains(&page.as_str());
            let is_known = is_run || not_run(&page, &block.text).is_some();
            assert!(block.language != "sh" || is_known, "{page}: not run: {}", block.text);
        }
    }
    for (page, start, _) in NOT_RUN {
        let is_there = blocks(page).iter().any(|block| block.text.starts_with(start));
        assert!(is_there, "{page} has no block that starts with {start}");
    }
}

#[test]
fn every_config_of_the_pages_is_valid() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.language == "toml") {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::create_dir(at("tls")).unwrap();
            for name in ["tls/cert.pem", "tls/ca.pem"] {
                fs::write(at(name), certificate.cert.pem()).unwrap();
            }
            fs::write(at("tls/key.pem"), certificate.signing_key.serialize_pem()).unwrap();
            for name in ["old.key", "edge.key"] {
                fs::write(at(name), "k".repeat(40)).unwrap();
            }
            let schema = crate::support::pages::root().join("docs/examples/order-1.json");
            fs::copy(schema, at("order-1.json")).unwrap();
            let config = block
                .text
                .replace("sha256:…", &format!("sha256:{}", "ab".repeat(32)))
                .replace("/etc/admit/", &format!("{}/", text(folder.path())));
            fs::write(at("admit.toml"), &config).unwrap();
            let checked = gate::admit(["config", "check", text(&at("admit.toml"))]).output();
            let checked = checked.unwrap();
            let stderr = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success(), "{page}: {config}\n{stderr}");
        }
    }
}

#[test]
fn every_json_block_of_the_pages_is_json() {
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.language == "json") {
            let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
            let is_good =
                block.text.contains('…') || is_json(&block.text) || block.text.lines().all(is_json);
            assert!(is_good, "{page}: {}", block.text);
        }
    }
}

#[test]
fn the_receipt_of_the_pixel_control_example_has_no_warnings() {
    if sql::skip_on_postgres() {
        return;
    }
    let mut session = Session::new();
    let all = blocks("docs/doors/pixel-control.md");
    session.run(&all[0].text);
    let receipt = session.run("admit receipts list --door pixel-control --json\n");
    assert!(receipt.contains("\"fresh\"") && !receipt.contains("warning"), "{receipt}");
    session.end();
}

#[test]
fn the_python_example_of_the_skyra_page_prints_an_ack_per_envelope() {
    let Some(python) = python::program("python3") else { return };
    let mut session = Session::new();
    let all = blocks("docs/doors/skyra.md");
    let example = all.iter().find(|block| block.language == "python").unwrap();
    let address = session.gate().address().to_string();
    let example = example.text.replace("127.0.0.1:8080", &address);
    let ran = gate::command(text(&python)).args(["-c", &example]).output().unwrap();
    let acks = String::from_utf8(ran.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(acks.matches("\"stored\"").count(), 100, "{acks}{stderr}");
    session.end();
}
