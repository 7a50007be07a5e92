//! Operator views of a ledger that several gates share.

use std::process::Command;

use admit_testkit::postgres::Server;
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::events::match_begin;
use crate::support::gate;
use crate::support::{TIMEOUT, wait_for};

fn parsed(reply: &str) -> Value {
    serde_json::from_str(reply).unwrap_or_else(|error| panic!("{error}: {reply}"))
}

#[test]
fn the_gates_of_a_ledger_are_listed_with_their_liveness() {
    let Some(cluster) = Cluster::start(2, &[]) else { return };
    let status = || {
        let (went_well, printed) = cluster.admit(1, &["ledger", "status", "--json"]);
        assert!(went_well, "{printed}");
        parsed(&printed)["gates"].clone()
    };
    let alive = |gates: &Value| -> Vec<(String, bool)> {
        let gates = gates.as_array().unwrap().iter();
        let mut gates: Vec<(String, bool)> = gates
            .map(|gate| (gate["id"].as_str().unwrap().to_owned(), gate["alive"] == true))
            .collect();
        gates.sort();
        gates
    };
    let both = [("gate-0".to_owned(), true), ("gate-1".to_owned(), true)];
    let gates = status();
    assert_eq!(alive(&gates), both, "{gates}");
    for gate in gates.as_array().unwrap() {
        assert!(gate["lease_until"].as_str() > gate["since"].as_str(), "{gate}");
    }
    cluster.kill(0);
    let gates = wait_for("its lease has run out", TIMEOUT, || {
        let gates = status();
        (alive(&gates)[0] == ("gate-0".to_owned(), false)).then_some(gates)
    });
    assert_eq!((&gates[0]["id"], &gates[1]["id"]), (&json!("gate-1"), &json!("gate-0")));
    let (went_well, printed) = cluster.admit(1, &["ledger", "status"]);
    assert!(went_well && printed.contains("lease until"), "{printed}");
    let line = |id: &str| printed.lines().find(|line| line.starts_with(id)).unwrap().to_owned();
    assert!(line("gate-0").ends_with("gone") && line("gate-1").ends_with("alive"), "{printed}");
    cluster.open(0);
    assert_eq!(alive(&status()), both, "each is listed once, with its newest start");
    cluster.stop_all();
}

/// Runs `admit verify` as a database user; returns whether it succeeded, and its output.
fn verify(server: &Server, user: &str, more: &[&str]) -> (bool, String) {
    let url = server.url("postgres").replacen("postgres@", &format!("{user}@"), 1);
    let folder = tempfile::tempdir().unwrap();
    let mut command: Command = gate::admit(["verify", "--ledger", &url]);
    command.args(more).arg("--data").arg(folder.path());
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn verify_checks_the_database_indexes_or_reports_why_not() {
    let Some(cluster) = Cluster::start(1, &[]) else { return };
    cluster.with(0, |gate| gate.client().submit(&match_begin(1, "a")).processed());
    let server = &cluster.server;
    let sql = |sql: &str| server.run("postgres", sql).unwrap_or_else(|error| panic!("{error}"));
    sql("CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA public TO looker; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker");
    let offered = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'";
    let is_offered = sql(offered) == "1";

    // Not installed and not permitted: everything else is checked.
    let (agrees, printed) = verify(server, "looker", &["--json"]);
    assert!(agrees, "{printed}");
    let report = parsed(&printed);
    let why = report["indexes_not_checked_why"].as_str().expect("why not").to_owned();
    assert!(why.contains("CREATE EXTENSION amcheck"), "{why}");
    assert_eq!((&report["checked"]["indexes"], &report["agrees"]), (&json!(0), &json!(true)));
    let (_, printed) = verify(server, "looker", &[]);
    assert!(printed.contains("indexes not checked: amcheck is not installed"), "{printed}");
    if !is_offered {
        return cluster.stop_all();
    }

    // Not installed but permitted: it is removed afterwards.
    let (agrees, printed) = verify(server, "postgres", &["--json"]);
    let report = parsed(&printed);
    assert!(agrees && report["checked"]["indexes"].as_u64().unwrap() > 40, "{printed}");
    assert_eq!(report["indexes_not_checked_why"], Value::Null);
    assert_eq!(sql("SELECT count(*) FROM pg_extension WHERE extname = 'amcheck'"), "0");

    // Installed in any schema; first without, then with permission.
    sql("CREATE SCHEMA tools; CREATE EXTENSION amcheck SCHEMA tools; \
         GRANT USAGE ON SCHEMA tools TO looker");
    let (agrees, printed) = verify(server, "looker", &[]);
    assert!(agrees && printed.contains("this user may not call amcheck"), "{printed}");
    sql("GRANT EXECUTE ON FUNCTION tools.bt_index_check(regclass, boolean) TO looker");
    let (agrees, printed) = verify(server, "looker", &["--json"]);
    assert!(agrees && parsed(&printed)["checked"]["indexes"].as_u64().unwrap() > 40, "{printed}");

    // A row that is missing in its index.
    let ready = |is: bool| {
        format!(
            "UPDATE pg_index SET indisready = {is}, indisvalid = {is} \
                 WHERE indexrelid = 'effect_history_pkey'::regclass"
        )
    };
    sql(&ready(false));
    sql(
        "INSERT INTO effect_history (seq, n, at, attempt, what, epoch) VALUES (1, 1, 1, 1, 'done', 1)",
    );
    sql(&ready(true));
    let (agrees, printed) = verify(server, "looker", &[]);
    assert!(!agrees && printed.contains("effect_history_pkey: "), "{printed}");
    cluster.stop_all();
}
