//! The edge agent with a gate: every acknowledged event arrives, over every transport.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;
use std::thread;

use admit_testkit::proxy::Faults;
use serde_json::{Value, json};

use crate::support::edge::{closed_address, gate_proxy, ids, outbox, status, wait_until_drained};
use crate::support::gate::{Gate, Launch, admit};
use crate::support::skyra::{self, DOOR, Wire, assert_acked, assert_nacked, inbox};
use crate::support::strace::{self, Trace};
use crate::support::{TIMEOUT, wait_for};

/// Sends envelopes to an agent, and asserts that each is acknowledged.
fn send(agent: &Gate, numbers: impl Iterator<Item = u64>) {
    let mut client = agent.client();
    for n in numbers {
        let response = client.send("POST", DOOR, &[], skyra::text(n).as_bytes()).unwrap().json();
        assert_acked(&response, &skyra::id(n));
    }
}

#[test]
fn acknowledged_events_arrive_over_every_transport_after_an_outage() {
    for transport in ["websocket", "grpc", "http"] {
        let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let proxy = gate_proxy();
        let agent = Launch::edge(edge.path(), proxy.address())
            .variable("ADMIT_EDGE__TRANSPORT", transport)
            .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
            .start();
        send(&agent, 0..60);
        let file = outbox(edge.path(), "skyra", "local");
        assert_eq!(ids(&file).len(), 60, "without a gate all events stay in the outbox");

        let gate = Gate::on(data.path());
        proxy.move_to(gate.address());
        wait_until_drained(&file);
        send(&agent, 60..80);
        wait_until_drained(&file);
        let rows = inbox(data.path());
        assert_eq!(rows.len(), 80, "{transport}");
        for (n, row) in (0..80).zip(&rows) {
            assert_eq!(row.event_id, skyra::id(n), "{transport}: events are out of order");
            assert_eq!(row.payload, skyra::text(n), "{transport}: the payload differs");
        }
        agent.stop();
        gate.stop();
    }
}

#[test]
fn a_backlog_is_sent_and_its_progress_is_logged() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proxy = gate_proxy();
    let agent = Launch::edge(edge.path(), proxy.address())
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
        .start();
    thread::scope(|scope| {
        for part in 0..8 {
            let agent = &agent;
            scope.spawn(move || send(agent, (0..800).filter(|n| n % 8 == part)));
        }
    });
    let gate = Gate::on(data.path());
    proxy.move_to(gate.address());
    wait_until_drained(&outbox(edge.path(), "skyra", "local"));
    assert_eq!(inbox(data.path()).len(), 800);
    let line = wait_for("the final progress line", TIMEOUT, || {
        agent.stderr().lines().find(|line| line.contains("the backlog is sent")).map(str::to_owned)
    });
    assert!(line.contains("waiting=0") && line.contains("per_second="), "{line}");
    agent.stop();
    gate.stop();
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_agent_exits_with_74() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let edge = folder.path().join("edge");
    let trace = Trace::into(folder.path());
    let options =
        ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=40+"];
    let agent = Launch::edge(&edge, closed_address()).under(trace.wrapper(&options)).start();
    let mut client = agent.client();
    let mut acked = Vec::new();
    for n in 0..200 {
        match client.send("POST", DOOR, &[], skyra::text(n).as_bytes()) {
            Ok(response) if response.json()["status"] == "stored" => acked.push(skyra::id(n)),
            Ok(response) => {
                assert_nacked(&response.json(), Some(&skyra::id(n)), "storage_unavailable");
                break;
            }
            Err(_) => break,
        }
    }
    assert!(
        (10..200).contains(&acked.len()),
        "{} events were stored before the failure",
        acked.len()
    );
    let exit = agent.wait_for_exit();
    assert_eq!(exit.status.code(), Some(74), "{}", exit.stderr);
    assert!(exit.stderr.contains("an outbox has stopped the agent"), "{}", exit.stderr);
    let agent = Launch::edge(&edge, closed_address()).start();
    let stored = ids(&outbox(&edge, "skyra", "local"));
    assert!(
        acked.iter().all(|id| stored.contains(id)),
        "an acknowledged event is not in the outbox"
    );
    agent.stop();
}

#[test]
fn the_agent_accepts_events_over_every_transport() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    for (n, mut wire) in (0..).zip(Wire::all(&agent)) {
        let response = wire.submit(skyra::text(n).as_bytes());
        assert_acked(&response, &skyra::id(n));
    }
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")).len(), 3);
    agent.stop();
}

#[test]
fn over_tls_the_agent_trusts_only_the_configured_authority() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("cert.pem"), signed.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), signed.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("other.pem"), other.cert.pem()).unwrap();
    let gate = Launch::on(&path("data"))
        .variable("ADMIT_TLS__CERT", path("cert.pem").to_str().unwrap())
        .variable("ADMIT_TLS__KEY", path("key.pem").to_str().unwrap())
        .start_without_probe();
    let url = format!("https://localhost:{}", gate.address().port());
    for (n, transport) in ["websocket", "grpc", "http"].into_iter().enumerate() {
        let start = |ca: &str| {
            Launch::edge_to(&path(transport), &url)
                .variable("ADMIT_EDGE__TRANSPORT", transport)
                .variable("ADMIT_EDGE__GATE_CA", path(ca).to_str().unwrap())
                .start()
        };
        let agent = start("other.pem");
        send(&agent, n as u64..n as u64 + 1);
        let refused = wait_for("the certificate is refused", TIMEOUT, || {
            status(&path(transport), "skyra", "local")
                .filter(|status| status["last_error"].is_string())
        });
        assert!(refused["last_error"].as_str().unwrap().contains("certificate"), "{refused}");
        agent.stop();
        let agent = start("cert.pem");
        wait_until_drained(&outbox(&path(transport), "skyra", "local"));
        agent.stop();
    }
    assert_eq!(inbox(&path("data")).len(), 3);
    gate.stop();
}

#[test]
fn an_agent_killed_between_storing_and_sending_delivers_after_its_restart() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Launch::edge(edge.path(), closed_address()).start();
    send(&agent, 0..20);
    agent.kill();
    let file = outbox(edge.path(), "skyra", "local");
    assert_eq!(ids(&file).len(), 20, "events must be stored before they are acknowledged");
    let gate = Gate::on(data.path());
    let agent = Launch::edge(edge.path(), gate.address()).start();
    wait_until_drained(&file);
    assert_eq!(inbox(data.path()).len(), 20, "the restarted agent must deliver all events");
    agent.stop();
}

#[test]
fn a_stopped_agent_keeps_unsent_events() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    send(&agent, 0..5);
    let waiting = wait_for("every row has been attempted", TIMEOUT, || {
        status(edge.path(), "skyra", "local").filter(|status| status["retrying"] == 5)
    });
    assert_eq!(waiting["depth"], 5, "{waiting}");
    assert!(waiting["last_error"].as_str().unwrap().contains("cannot connect"), "{waiting}");
    assert!(waiting["oldest_age_seconds"].is_u64(), "{waiting}");
    let stderr = agent.stderr();
    assert!(stderr.contains("stay in the outbox"), "{stderr}");
    agent.stop();
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")).len(), 5);
}

/// `admit edge invalid …` on an agent's folder.
fn invalid(edge: &Path, arguments: &[&str]) -> Output {
    let data = ["--data", edge.to_str().unwrap()];
    let arguments = [&["edge", "invalid"], arguments, &data].concat();
    admit(&arguments).output().unwrap()
}

/// Returns the list of `admit edge invalid list`.
fn listed(edge: &Path) -> Vec<Value> {
    let output = invalid(edge, &["list", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    reply["invalid"].as_array().unwrap().clone()
}

#[test]
fn invalid_envelopes_are_nacked_by_the_agent_and_kept_until_resolved() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    let mut envelope = skyra::envelope(1);
    envelope["ts"] = json!("yesterday");
    let body = envelope.to_string();
    for mut wire in Wire::all(&agent) {
        let response = wire.submit(body.as_bytes());
        let message = assert_nacked(&response, Some(&skyra::id(1)), "invalid_envelope");
        assert!(message.starts_with("invalid envelope"), "{message}");
    }
    let response = agent.client().send("POST", DOOR, &[], b"no json \xff").unwrap().json();
    assert_nacked(&response, None, "invalid_envelope");
    agent.kill();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    let outbox_status = status(edge.path(), "skyra", "local").unwrap();
    assert_eq!(
        (&outbox_status["depth"], &outbox_status["invalid"]),
        (&json!(0), &json!(2)),
        "{outbox_status}"
    );
    let entries = listed(edge.path());
    let seen: Vec<_> =
        entries.iter().map(|entry| (&entry["event_id"], &entry["seen_count"])).collect();
    assert_eq!(seen, [(&json!(skyra::id(1)), &json!(3)), (&json!(null), &json!(1))]);
    assert_eq!(entries[0]["payload"], body, "the payload differs");
    assert!(entries[0]["last_error"].as_str().unwrap().contains("ts must be"), "{entries:?}");

    let names: Vec<&str> =
        entries.iter().map(|entry| entry["envelope"].as_str().unwrap()).collect();
    let retried = invalid(edge.path(), &["retry", names[0]]);
    assert_eq!(retried.status.code(), Some(1));
    let error = String::from_utf8_lossy(&retried.stderr).into_owned();
    assert!(error.contains("still invalid: ts must be"), "{error}");
    assert!(invalid(edge.path(), &["delete", names[1]]).status.success());
    assert_eq!(
        invalid(edge.path(), &["delete", names[1]]).status.code(),
        Some(1),
        "deleted already"
    );
    assert_eq!(listed(edge.path()).len(), 1, "the other must remain");
    agent.stop();
}

#[test]
fn a_retried_invalid_envelope_is_sent_once_it_is_valid() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(data.path());
    let agent = Launch::edge(edge.path(), gate.address())
        .variable("ADMIT_LIMITS__JSON_DEPTH_MAX", "3")
        .start();
    let mut deep = skyra::envelope(1);
    deep["payload"]["a"] = json!({ "b": { "c": 1 } });
    let body = deep.to_string();
    let response = agent.client().send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
    assert_nacked(&response, None, "invalid_envelope");
    let entries = listed(edge.path());
    let name = entries[0]["envelope"].as_str().unwrap();
    // The command's config has other limits than the agent's.
    let retried = invalid(edge.path(), &["retry", name]);
    assert!(retried.status.success(), "{}", String::from_utf8_lossy(&retried.stderr));
    wait_for("the running agent sends the envelope", TIMEOUT, || {
        inbox(data.path()).iter().any(|row| row.payload == body).then_some(())
    });
    assert!(listed(edge.path()).is_empty());
    wait_until_drained(&outbox(edge.path(), "skyra", "local"));
    agent.stop();
    gate.stop();
}

#[test]
fn a_damaged_outbox_closes_only_its_own_door() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    send(&agent, 0..1);
    agent.stop();
    let file = outbox(edge.path(), "skyra", "local");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [b"no database".as_slice(), &whole[11..]].concat()).unwrap();

    let agent = Launch::edge(edge.path(), closed_address()).start();
    let refused = agent.client().send("POST", DOOR, &[], skyra::text(1).as_bytes()).unwrap();
    let message = assert_nacked(&refused.json(), Some(&skyra::id(1)), "storage_unavailable");
    assert!(message.contains("cannot be opened"), "{message}");
    let key = [("Idempotency-Key", "one")];
    let taken = agent.client().send("POST", "/v1/events", &key, b"{}").unwrap();
    assert_eq!(taken.status, 201, "other doors must stay open: {}", taken.json());
    assert_eq!(agent.client().send("GET", "/readyz", &[], b"").unwrap().status, 200);
    let metrics = agent.client().send("GET", "/metrics", &[], b"").unwrap();
    let closed = r#"admit_edge_outbox_closed{door="skyra",producer="local"} 1"#;
    assert!(String::from_utf8(metrics.body).unwrap().contains(closed));
    let output = admit(["edge", "status", "--json", "--data", edge.path().to_str().unwrap()]);
    let output = { output }.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "an unreadable outbox is an error");
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    let doors: Vec<&Value> =
        reply["outboxes"].as_array().unwrap().iter().map(|outbox| &outbox["door"]).collect();
    assert_eq!(doors, ["events/default", "skyra"], "readable outboxes must be listed: {reply}");

    // Repaired while the agent runs.
    std::fs::write(&file, whole).unwrap();
    send(&agent, 1..2);
    assert_eq!(ids(&file).len(), 2, "unsent events must remain");
    agent.stop();
}

#[test]
fn an_outbox_with_a_damaged_row_accepts_no_more() {
    const PAGE: usize = 4_096;
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    send(&agent, 0..60);
    agent.stop();
    let file = outbox(edge.path(), "skyra", "local");
    let mut bytes = std::fs::read(&file).unwrap();
    // A page of rows in the middle of the table; the first page is undamaged.
    let needle = format!("\"event_id\":\"{}\"", skyra::id(30)).into_bytes();
    let at = bytes.windows(needle.len()).position(|part| part == needle).unwrap();
    let page = at / PAGE * PAGE;
    assert!(page > 0, "the row is in the first page");
    bytes[page..page + 8].fill(0xee);
    std::fs::write(&file, bytes).unwrap();

    let agent = Launch::edge(edge.path(), closed_address()).start();
    let refused = agent.client().send("POST", DOOR, &[], skyra::text(60).as_bytes()).unwrap();
    let message = assert_nacked(&refused.json(), Some(&skyra::id(60)), "storage_unavailable");
    assert!(message.contains("cannot be opened"), "{message}");
    agent.stop();
}

#[test]
fn the_status_of_a_missing_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no-such-agent");
    for arguments in [&["edge", "status"][..], &["edge", "invalid", "list"]] {
        let data = ["--data", missing.to_str().unwrap()];
        let output = admit([arguments, &data].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("no folder") && error.contains("--data"), "{error}");
        assert!(!missing.exists(), "the folder must not be created");
    }
    let data = ["edge", "status", "--data", folder.path().to_str().unwrap()];
    let output = admit(data).output().unwrap();
    assert!(output.status.success(), "an empty folder is valid");
}

#[test]
fn a_repeated_id_is_one_row_and_with_other_content_both_reach_the_gate() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proxy = gate_proxy();
    let agent = Launch::edge(edge.path(), proxy.address()).start();
    send(&agent, 0..1);
    send(&agent, 0..1);
    let mut other = skyra::envelope(0);
    other["payload"]["confidence"] = json!(0.1);
    let body = other.to_string();
    let response = agent.client().send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
    assert_acked(&response, &skyra::id(0));
    let file = outbox(edge.path(), "skyra", "local");
    assert_eq!(ids(&file).len(), 2, "an identical copy shares the row, other content has its own");

    let gate = Gate::on(data.path());
    proxy.move_to(gate.address());
    wait_until_drained(&file);
    let rows = inbox(data.path());
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].payload, skyra::text(0), "the first must stay");
    let conflicts = gate.client().get("/v1/quarantine");
    assert!(conflicts.to_string().contains("conflict"), "the other is listed: {conflicts}");
    agent.stop();
}

#[test]
fn a_full_outbox_refuses_with_the_doors_error_and_drains_later() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proxy = gate_proxy();
    let agent = Launch::edge(edge.path(), proxy.address())
        .variable("ADMIT_EDGE__OUTBOX_BYTES_MAX", "200000")
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
        .start();
    let mut client = agent.client();
    let mut stored = 0;
    let full = loop {
        let body = skyra::text(stored);
        let response = client.send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
        if response["status"] != "stored" {
            break response;
        }
        stored += 1;
        assert!(stored < 2_000, "outbox_bytes_max is not enforced");
    };
    let message = assert_nacked(&full, Some(&skyra::id(stored)), "storage_unavailable");
    assert!(message.contains("full"), "{message}");
    assert!(stored > 100, "only {stored} events fit");

    let gate = Gate::on(data.path());
    proxy.move_to(gate.address());
    wait_until_drained(&outbox(edge.path(), "skyra", "local"));
    send(&agent, stored..stored + 1);
    agent.stop();
    gate.stop();
}

#[test]
fn the_agent_listens_on_a_private_unix_socket_and_exports_metrics() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    let path = edge.path().join("edge.sock");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut socket = UnixStream::connect(&path).unwrap();
    let body = skyra::text(7);
    let request = format!(
        "POST {DOOR} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("\"stored\""), "{response}");
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")), [skyra::id(7)]);

    let metrics = agent.client().send("GET", "/metrics", &[], b"").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    let labels = r#"{door="skyra",producer="local"}"#;
    for line in [
        format!("admit_edge_outbox_depth{labels} 1"),
        format!("admit_edge_outbox_enqueued_total{labels} 1"),
        format!("admit_edge_outbox_connected{labels} 0"),
    ] {
        assert!(metrics.lines().any(|printed| printed == line), "{line} in {metrics}");
    }
    agent.stop();
    assert!(!path.exists(), "the agent must remove its socket");
}

#[test]
fn a_second_agent_on_the_folder_is_refused() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), closed_address()).start();
    send(&agent, 0..1);
    let exit = Launch::edge(edge.path(), closed_address()).start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1));
    assert!(exit.stderr.contains("another process uses the outbox"), "{}", exit.stderr);
    agent.stop();
}

#[test]
fn over_a_network_that_cuts_stalls_and_repeats_each_event_arrives_once() {
    let seed = 6;
    for transport in ["websocket", "grpc", "http"] {
        let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let gate = Gate::on(data.path());
        let proxy = gate_proxy();
        proxy.move_to(gate.address());
        proxy.set_faults(Faults {
            cut_one_in: 15,
            stall_one_in: 12,
            stall: std::time::Duration::from_millis(50),
            duplicate_one_in: 3,
            ..Faults::default()
        });
        let agent = Launch::edge(edge.path(), proxy.address())
            .variable("ADMIT_EDGE__TRANSPORT", transport)
            .variable("ADMIT_EDGE__ACK_MS_MAX", "500")
            .variable("ADMIT_EDGE__BACKOFF_MS_BASE", "20")
            .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "200")
            .start();
        send(&agent, 0..150);
        wait_until_drained(&outbox(edge.path(), "skyra", "local"));
        let mut arrived: Vec<String> =
            inbox(data.path()).into_iter().map(|row| row.event_id).collect();
        arrived.sort();
        let wanted: Vec<String> = (0..150).map(skyra::id).collect();
        assert_eq!(arrived, wanted, "{transport}, seed {seed}");
        agent.stop();
        gate.stop();
    }
}
