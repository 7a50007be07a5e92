//! Operator interfaces: metrics, the OpenAPI document, verification.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;

use crate::support::events::{heartbeat, match_begin};
use crate::support::gate::{self, Gate, Launch};
use crate::support::http::DOOR;
use crate::support::machine::text;
use crate::support::{TIMEOUT, python, sql, wait_for};

fn page(gate: &Gate) -> String {
    let answer = gate.client().send("GET", "/metrics", &[], b"").expect("response from the gate");
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).expect("text")
}

/// Value of a series on the metrics page.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{series} is not on the page:\n{page}"));
    value.parse().expect("a number")
}

#[test]
fn metrics_cover_commits_and_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let commits = |page: &str| value(page, "admit_ledger_commit_duration_seconds_count");
    // Commits of the start, such as recovery, are not counted here.
    let before = commits(&page(&gate));
    let mut client = gate.client();
    for n in 1..=20 {
        client.submit(&match_begin(n, "a")).processed();
    }
    client.submit(&match_begin(1, "a")).duplicate();
    // The commit is counted before its replies are sent.
    let page = page(&gate);
    let admissions = |verdict: &str| {
        let labels = format!("door=\"pixel-control\",verdict=\"{verdict}\"");
        value(&page, &format!("admit_admissions_total{{{labels}}}"))
    };
    assert_eq!((admissions("fresh"), admissions("duplicate")), (20.0, 1.0));
    assert_eq!(value(&page, "admit_ledger_commit_events_sum"), 21.0);
    let commits = commits(&page) - before;
    assert!((1.0..=21.0).contains(&commits), "{commits}");
    let seconds = value(&page, "admit_ledger_commit_duration_seconds_sum");
    assert!(seconds > 0.0 && seconds < 60.0, "{seconds}");
    assert!(value(&page, "admit_ledger_size_bytes") > 0.0);
    assert!(value(&page, "admit_ledger_log_bytes") > 0.0);
    assert_eq!(value(&page, "admit_ledger_healthy"), 1.0);
    assert_eq!(value(&page, "admit_ledger_queue_depth"), 0.0);
    assert!(page.contains("admit_build_info{version="), "{page}");
    gate.stop();
}

#[test]
fn a_request_is_found_in_the_log_by_its_trace_id() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path())
        .variable("ADMIT_LOG__LEVEL", "info,admit_gate=debug")
        .variable("ADMIT_LOG__FORMAT", "json");
    let gate = launch.start();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let body = match_begin(1, "a").body();
    let headers = [("traceparent", &*parent)];
    let answer = gate.client().send("POST", DOOR, &headers, body.as_bytes()).unwrap();
    assert_eq!(answer.header("x-trace-id"), Some(trace));
    let lines = wait_for("the access log has it", TIMEOUT, || {
        let log = gate.stderr();
        let found: Vec<String> =
            log.lines().filter(|line| line.contains(trace)).map(str::to_owned).collect();
        (!found.is_empty()).then_some(found)
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("a line is one JSON object");
    assert_eq!((&line["trace_id"], &line["status"]), (&trace.into(), &200.into()), "{line}");
    assert_eq!((&line["method"], &line["path"]), (&"POST".into(), &DOOR.into()), "{line}");
    gate.stop();
}

/// Runs `admit` with these arguments to its end.
fn admit(words: &[&str]) -> Output {
    gate::admit(words).output().unwrap()
}

fn verified(folder: &std::path::Path) -> (Option<i32>, Value) {
    let output = admit(&["verify", "--json", "--data", text(folder)]);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), report)
}

#[test]
fn a_consistent_ledger_verifies_while_the_gate_runs_and_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for n in 1..=50 {
        client.submit(&match_begin(n, if n % 2 == 0 { "a" } else { "b" })).processed();
    }
    client.submit(&heartbeat(51, "a")).processed();
    client.submit(&match_begin(1, "b").attempt(2)).duplicate();
    client.submit(&match_begin(2, "a").set("/envelope/source_time", 5)).duplicate();
    client.submit_bytes(b"not json").rejected();
    client.submit_bytes(b"not json").rejected();
    for _ in 0..2 {
        let (code, report) = verified(folder.path());
        assert_eq!((code, &report["agrees"]), (Some(0), &true.into()), "{report}");
        assert_eq!(report["checked"]["admissions"], 53, "{report}");
        assert_eq!(report["checked"]["recomputed"], 53, "{report}");
        assert_eq!(report["checked"]["keys"], 51, "{report}");
        assert_eq!(report["checked"]["documents"], 2, "{report}");
    }
    gate.stop();
    assert_eq!(verified(folder.path()).0, Some(0));
    let people = admit(&["verify", "--data", text(folder.path())]);
    assert!(String::from_utf8_lossy(&people.stdout).ends_with("everything agrees\n"));
}

#[test]
fn commands_find_the_gate_by_its_data_folder_and_need_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("admit.toml");
    let principals =
        "[[principals]]\nname = \"arena\"\nkeys = [\"a-key-of-the-arena-long-enough\"]\n";
    std::fs::write(&config, principals).unwrap();
    let launch = Launch::on(&data).variable("ADMIT_CONFIG", text(&config));
    let gate = launch.start();
    let socket = data.join("admit.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the socket is private");

    let claim = ["inbox", "claim", "--consumer", "me", "--json", "--data", text(&data)];
    let claimed = admit(&claim);
    assert!(claimed.status.success(), "{claimed:?}");
    let listen = gate.address().to_string();
    let by_port = admit(&[&claim[..], &["--listen", &listen]].concat());
    assert!(!by_port.status.success(), "the port wants a key: {by_port:?}");

    gate.stop();
    assert!(!socket.exists(), "a gate that ends leaves no socket behind");
    let alone = admit(&[&claim[..], &["--listen", &listen]].concat());
    let printed = String::from_utf8_lossy(&alone.stderr);
    assert!(printed.contains("is it running?"), "{printed}");
}

#[test]
fn a_stale_socket_does_not_prevent_a_start() {
    let data = tempfile::tempdir().unwrap();
    Gate::on(data.path()).kill();
    assert!(data.path().join("admit.sock").exists(), "a gate that is killed cannot tidy up");
    let gate = Gate::on(data.path());
    let claimed = admit(&["inbox", "claim", "--consumer", "me", "--data", text(data.path())]);
    assert!(claimed.status.success(), "{claimed:?}");
    gate.stop();
}

#[test]
fn verify_names_every_changed_row() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for n in 1..=5 {
        client.submit(&match_begin(n, "a")).processed();
    }
    client.submit(&match_begin(1, "a").attempt(2)).duplicate();
    client.submit_bytes(b"not json").rejected();
    gate.stop();
    let file = folder.path().join("ledger.db");
    let whole = {
        let conn = Connection::open(&file).unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(conn);
        std::fs::read(&file).unwrap()
    };
    assert_eq!(verified(folder.path()).0, Some(0), "it is good before it is harmed");
    for (harm, check) in [
        ("UPDATE admission SET digest = zeroblob(32) WHERE seq = 2", "digest"),
        ("UPDATE admission SET key = zeroblob(32) WHERE seq = 2", "key"),
        ("UPDATE admission SET facts = '{}' WHERE seq = 3", "facts"),
        ("UPDATE body SET bytes = CAST('{}' AS BLOB) WHERE seq = 3", "body"),
        ("UPDATE body SET bytes = CAST('x' AS BLOB) WHERE seq = 7", "digest"),
        ("DELETE FROM body WHERE seq = 4", "body"),
        ("DELETE FROM key_log WHERE seq = 4", "key_index"),
        ("UPDATE key_log SET key = zeroblob(32) WHERE seq = 4", "key_index"),
        ("UPDATE key_log SET key = substr(key, 1, 31) WHERE seq = 4", "key_index"),
        ("UPDATE key_log SET key = key || zeroblob(32) WHERE seq = 4", "key_index"),
        ("INSERT INTO key_index VALUES (zeroblob(32), 3)", "key_index"),
        ("INSERT INTO key_page VALUES (0, CAST(zeroblob(37) || x'03' AS BLOB))", "key_index"),
        ("INSERT INTO key_page VALUES (0, zeroblob(37))", "key_index"),
        (
            "INSERT INTO key_page SELECT 9223372036854775807, \
             CAST(key || x'000000000004' AS BLOB) FROM key_log WHERE seq = 4",
            "key_index",
        ),
        ("UPDATE key_region SET merged_to = 100", "key_index"),
        ("UPDATE sighting SET admission = 99", "sighting"),
        ("UPDATE meta SET value = value + 1 WHERE name = 'admissions'", "counter"),
        ("DELETE FROM admission WHERE seq = 5", "counter"),
        ("UPDATE document SET text = '{}'", "document"),
        ("DELETE FROM document", "document"),
        ("UPDATE admission SET verdict = 'maybe' WHERE seq = 1", "verdict"),
    ] {
        for suffix in ["-wal", "-shm"] {
            std::fs::remove_file(folder.path().join(format!("ledger.db{suffix}")))
                .unwrap_or_default();
        }
        std::fs::write(&file, &whole).unwrap();
        let conn = Connection::open(&file).unwrap();
        assert!(conn.execute(harm, []).unwrap() > 0, "{harm}");
        drop(conn);
        let (code, report) = verified(folder.path());
        assert_eq!((code, &report["agrees"]), (Some(1), &false.into()), "{harm}: {report}");
        let named = report["disagreements"].as_array().unwrap();
        assert!(named.iter().any(|found| found["check"] == check), "{harm}: {report}");
    }
}

#[test]
fn verify_finds_a_changed_body_at_any_door_and_reports_what_it_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("admit.toml");
    let stream = "[[doors.events]]\n[[doors.events]]\nname = \"whole\"\nidentity = \"body\"\n";
    std::fs::write(&config, stream).unwrap();
    let gate = Launch::on(&data).variable("ADMIT_CONFIG", text(&config)).start();
    let mut client = gate.client();
    let mut send = |path: &str, headers: &[(&str, &str)], body: &str| {
        let answer = client.send("POST", path, headers, body.as_bytes()).unwrap();
        assert!(answer.status < 300, "{}", String::from_utf8_lossy(&answer.body));
    };
    send("/v1/events", &[("Idempotency-Key", "one")], "{\"total\":5}");
    send("/v1/events/whole", &[], "{\"total\":6}");
    let task = r#"{"kind":"intent","intent_type":"create_task","fields":{"title":"A"}}"#;
    send("/v1/intents", &[], task);
    gate.stop();
    let verify = |words: &[&str]| {
        let words = [&["verify", "--data", text(&data)], words].concat();
        let output = admit(&words);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, printed) = verify(&["--config", text(&config)]);
    assert!(code == Some(0) && printed.ends_with("\neverything agrees\n"), "{printed}");
    let (code, printed) = verify(&[]);
    assert!(printed.contains("not recomputed: 1 with their digest only"), "{printed}");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.ends_with("everything agrees, except that 1 were not recomputed\n"),
        "{printed}"
    );
    for seq in 1..=3 {
        let query = format!("SELECT bytes FROM body WHERE seq = {seq}");
        let whole: Vec<u8> = sql::query_one(&data, &query);
        let put = |bytes: &[u8]| {
            let bytes = sql::bytes(bytes);
            sql::execute(&data, &format!("UPDATE body SET bytes = {bytes} WHERE seq = {seq}"));
        };
        put(b"{\"total\":7}");
        for words in [&["--config", text(&config)][..], &[]] {
            let (code, printed) = verify(words);
            assert_eq!(code, Some(1), "{printed}");
            assert!(printed.contains(&format!("-{seq}: digest: ")), "{printed}");
        }
        put(&whole);
    }
}

#[test]
fn the_openapi_document_is_valid() {
    let Some(validator) = python::program("openapi-spec-validator") else { return };
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(&folder.path().join("data"));
    let answer = gate.client().send("GET", "/openapi.json", &[], b"").unwrap();
    let document = answer.json();
    for path in [DOOR, "/v1/events", "/v1/events/{stream}", "/v1/events/{stream}/claim"] {
        assert!(document["paths"][path]["post"].is_object(), "{path} is not described");
    }
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, &answer.body).unwrap();
    let output = Command::new(validator).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    gate.stop();
}

/// Excluded checks: which requests must be refused or accepted. This door replies 200 to contract
/// violations, because its producers read only the body.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,\
    allow_header_conformance,ignored_auth";

#[test]
fn requests_generated_from_the_openapi_document_get_documented_responses_only() {
    let Some(schemathesis) = python::program("schemathesis") else { return };
    let folder = tempfile::tempdir().unwrap();
    // A long poll on an empty stream waits for its full timeout.
    let launch = Launch::on(&folder.path().join("data"));
    let gate = launch.variable("ADMIT_LIMITS__WAIT_MS_MAX", "20").start();
    for n in 1..=3 {
        gate.client().submit(&match_begin(n, "a")).processed();
    }
    let url = format!("http://{}/openapi.json", gate.address());
    let output = Command::new(schemathesis)
        .current_dir(folder.path())
        .args(["run", &url, "--checks", CHECKS, "--max-examples", "30", "--seed", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--generation-database", "none"])
        .args(["--no-color", "--suppress-health-check", "all", "--warnings", "off"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("No issues found") && !printed.contains("Tested: 0"), "{printed}");
    gate.client().submit(&match_begin(4, "a")).processed();
    gate.stop();
    let (code, report) = verified(&folder.path().join("data"));
    assert_eq!(code, Some(0), "whatever came of it, the ledger agrees with itself: {report}");
}
