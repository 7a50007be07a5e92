//! Starting, configuring and stopping a gate from a terminal.

use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::assert_reply::PixelReply;
use crate::support::events::sample;
use crate::support::gate::{self, Gate, Launch};
use crate::support::http::DOOR;
use crate::support::machine::{command, has};

/// Runs `admit` with these arguments to its end, without any config of the environment.
fn admit(words: &[&str]) -> Output {
    gate::admit(words).output().unwrap()
}

#[test]
fn without_config_the_gate_prints_its_doors_and_a_working_curl_command() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("admit-data");
    // The port is explicit, because the default may be in use on this machine.
    let launch = Launch::bare(&data).in_folder(folder.path());
    let gate = launch.variable("ADMIT_LISTEN", "127.0.0.1:0").start();
    let words = gate.stdout();
    assert!(words.contains(&format!("POST http://{}{DOOR}", gate.address())), "{words}");
    let line = words.lines().map(str::trim).find(|line| line.starts_with("curl "));
    let line = line.unwrap_or_else(|| panic!("there is something to try: {words}"));
    let first = tried(&gate, line);
    assert!(first.contains("receipt_id") && !first.contains("idempotent-replayed"), "{first}");
    let copy = tried(&gate, line);
    assert!(copy.contains("idempotent-replayed: true"), "{copy}");
    assert!(data.join("ledger.db").exists(), "data lies in ./admit-data");
    gate.stop();
}

/// Head and body of the reply to the printed command; without curl, to the same event sent by the test
/// client.
fn tried(gate: &Gate, line: &str) -> String {
    if !has("curl") {
        let (_, rest) = line.split_once("-d '").expect("the line has a body");
        let body = rest.strip_suffix('\'').expect("the body is the last word");
        let headers = [("Idempotency-Key", "order-1")];
        let answer = gate.client().send("POST", "/v1/events", &headers, body.as_bytes()).unwrap();
        let head = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
        return head.collect::<String>() + &String::from_utf8_lossy(&answer.body);
    }
    let output = command("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_commit_waits_for_the_kernel_to_clear_a_huge_page() {
    let data = tempfile::tempdir().unwrap();
    let gate = Gate::on(data.path());
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.pid())).unwrap();
    let huge = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    assert!(huge.is_none_or(|enabled| enabled.trim() == "0"), "{status}");
    gate.stop();
}

#[test]
fn the_defaults_are_loopback_port_8080_and_a_folder_in_the_working_directory() {
    let output = admit(&["config", "show"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nlisten = \"127.0.0.1:8080\"\n"), "{text}");
    assert!(text.contains("\ndata = \"./admit-data\"\n"), "{text}");
}

#[test]
fn a_config_error_names_its_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    for (text, line, word) in [
        ("listen = \"127.0.0.1:0\"\n\n[limits]\nbody_bites_max = 5\n", 4, "body_bites_max"),
        ("[limits]\nbody_bytes_max = \"lots\"\n", 2, "whole number"),
        ("[doors.pixel-control\n", 1, "]"),
    ] {
        std::fs::write(&file, text).unwrap();
        let launch = Launch::on(folder.path()).argument("--config").argument(&file);
        let ended = launch.start_expecting_exit();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        let place = format!("{}:{line}:", file.display());
        assert!(ended.stderr.contains(&place), "{place} in {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{word} in {}", ended.stderr);
        assert_eq!(ended.stdout, "", "standard output is for results");
    }
}

#[test]
fn environment_variables_override_the_file_and_an_unknown_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    std::fs::write(&file, "[doors.pixel-control]\npath = \"/from/file\"\n").unwrap();
    let data = folder.path().join("data");
    let configured = || Launch::on(&data).argument("--config").argument(&file);

    let gate = configured().start();
    let at = |gate: &Gate, path: &str| {
        let body = sample().body();
        gate.client()
            .send("POST", path, &[], body.as_bytes())
            .expect("response from the gate")
            .status
    };
    assert_eq!((at(&gate, "/from/file"), at(&gate, DOOR)), (200, 404));
    gate.stop();
    let variable = "ADMIT_DOORS__PIXEL_CONTROL__PATH";
    let gate = configured().variable(variable, "/from/environment").start();
    assert_eq!((at(&gate, "/from/environment"), at(&gate, "/from/file")), (200, 404));
    gate.stop();

    let ended = configured().variable("ADMIT_LISTN", "127.0.0.1:1").start_expecting_exit();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("ADMIT_LISTEN"), "it names the nearest: {}", ended.stderr);
}

#[test]
fn without_principals_the_gate_serves_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let open = Launch::bare(folder.path())
        .argument("--data")
        .argument(folder.path())
        .argument("--listen")
        .argument("0.0.0.0:0");
    let ended = open.start_expecting_exit();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("principals"), "what to do: {}", ended.stderr);

    let gate = Gate::on(folder.path());
    let body = sample().body();
    for page in [[("Host", "evil.example")], [("Origin", "http://evil.example")]] {
        let answer = gate.client().send("POST", DOOR, &page, body.as_bytes()).unwrap();
        assert_eq!(PixelReply::read(&answer).error(403).code, "forbidden", "{page:?}");
    }
    gate.client().submit(&sample()).processed();
}

#[test]
fn health_reports_liveness_and_the_doors() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    assert!(client.get("/livez").is_object());
    assert_eq!(client.get("/readyz")["ready"], true);
    assert_eq!(client.get("/")["doors"][0]["path"], DOOR);
}

#[test]
fn a_signal_stops_an_idle_gate_with_exit_code_zero_and_a_restart_continues() {
    let folder = tempfile::tempdir().unwrap();
    for (start, name) in ["TERM", "INT", "TERM"].into_iter().enumerate() {
        let gate = Gate::on(folder.path());
        // The connection stays open, as a producer's does between two events.
        let mut idle = gate.client();
        let printed = idle.submit(&sample());
        assert_eq!(printed.is_processed(), start == 0, "start {start}: {printed:?}");
        let begun = Instant::now();
        gate.signal(name);
        let ended = gate.wait_for_exit();
        assert_eq!(ended.status.code(), Some(0), "{name}: {}", ended.stderr);
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_port_in_use_is_an_error_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let launch = Launch::bare(folder.path()).argument("--data").argument(folder.path());
    let ended = launch.argument("--listen").argument(&address).start_expecting_exit();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
    assert!(ended.stderr.contains("--listen"), "what to do: {}", ended.stderr);
}

#[test]
fn receipts_can_be_listed_while_the_gate_runs() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&sample()).processed();
    gate.client().submit(&sample().attempt(2)).duplicate();
    let data = gate.data().to_str().unwrap();
    let output = admit(&["receipts", "list", "--data", data, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let receipts = listed["receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), 1, "{listed}");
    assert_eq!(receipts[0]["duplicate_count"], 1, "{listed}");
    gate.stop();
}
