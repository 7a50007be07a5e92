//! The agent and a gate: what the agent has acknowledged arrives, by every way there is.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;
use std::thread;

use admit_testkit::proxy::Faults;
use serde_json::{Value, json};

use crate::support::edge::{drained, ids, nowhere, outbox, status, street};
use crate::support::gate::{Gate, Launch, admit};
use crate::support::skyra::{self, DOOR, Wire, assert_acked, assert_nacked, inbox};
use crate::support::strace::{self, Trace};
use crate::support::{SOON, until};

/// Sends envelopes `numbers` to an agent, which must acknowledge each.
fn send(agent: &Gate, numbers: impl Iterator<Item = u64>) {
    let mut client = agent.client();
    for n in numbers {
        let answer = client.send("POST", DOOR, &[], skyra::text(n).as_bytes()).unwrap().json();
        assert_acked(&answer, &skyra::id(n));
    }
}

#[test]
fn what_the_agent_acknowledged_arrives_over_every_transport_after_an_outage() {
    for transport in ["websocket", "grpc", "http"] {
        let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let street = street();
        let agent = Launch::edge(edge.path(), street.address())
            .variable("ADMIT_EDGE__TRANSPORT", transport)
            .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
            .start();
        send(&agent, 0..60);
        let file = outbox(edge.path(), "skyra", "local");
        assert_eq!(ids(&file).len(), 60, "no gate, so all of them wait");

        let gate = Gate::on(data.path());
        street.move_to(gate.address());
        drained(&file);
        send(&agent, 60..80);
        drained(&file);
        let rows = inbox(data.path());
        assert_eq!(rows.len(), 80, "{transport}");
        for (n, row) in (0..80).zip(&rows) {
            assert_eq!(row.event_id, skyra::id(n), "{transport}: in the order they were sent");
            assert_eq!(row.payload, skyra::text(n), "{transport}: byte for byte");
        }
        agent.stop();
        gate.stop();
    }
}

#[test]
fn a_backlog_is_sent_at_full_speed_and_a_line_says_how_far_it_has_come() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let street = street();
    let agent = Launch::edge(edge.path(), street.address())
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
        .start();
    thread::scope(|scope| {
        for part in 0..8 {
            let agent = &agent;
            scope.spawn(move || send(agent, (0..800).filter(|n| n % 8 == part)));
        }
    });
    let gate = Gate::on(data.path());
    street.move_to(gate.address());
    drained(&outbox(edge.path(), "skyra", "local"));
    assert_eq!(inbox(data.path()).len(), 800);
    let line = until("the line at the end", SOON, || {
        agent.stderr().lines().find(|line| line.contains("the backlog is sent")).map(str::to_owned)
    });
    assert!(line.contains("waiting=0") && line.contains("per_second="), "{line}");
    agent.stop();
    gate.stop();
}

#[test]
fn after_a_failed_sync_nobody_is_told_stored_and_the_agent_stops_with_74() {
    if !strace::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let edge = folder.path().join("edge");
    let trace = Trace::into(folder.path());
    let options =
        ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=40+"];
    let agent = Launch::edge(&edge, nowhere()).under(trace.wrapper(&options)).start();
    let mut client = agent.client();
    let mut acked = Vec::new();
    for n in 0..200 {
        match client.send("POST", DOOR, &[], skyra::text(n).as_bytes()) {
            Ok(answer) if answer.json()["status"] == "stored" => acked.push(skyra::id(n)),
            Ok(answer) => {
                assert_nacked(&answer.json(), Some(&skyra::id(n)), "storage_unavailable");
                break;
            }
            Err(_) => break,
        }
    }
    assert!((10..200).contains(&acked.len()), "{} were stored before it failed", acked.len());
    let ended = agent.ended();
    assert_eq!(ended.status.code(), Some(74), "{}", ended.stderr);
    assert!(ended.stderr.contains("an outbox has stopped the agent"), "{}", ended.stderr);
    let agent = Launch::edge(&edge, nowhere()).start();
    let held = ids(&outbox(&edge, "skyra", "local"));
    assert!(acked.iter().all(|id| held.contains(id)), "what was acknowledged is there");
    agent.stop();
}

#[test]
fn producers_may_speak_to_the_agent_over_every_transport_too() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    for (n, mut wire) in (0..).zip(Wire::all(&agent)) {
        let answer = wire.say(skyra::text(n).as_bytes());
        assert_acked(&answer, &skyra::id(n));
    }
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")).len(), 3);
    agent.stop();
}

#[test]
fn over_tls_the_agent_believes_the_authority_it_was_given_and_no_other() {
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
        .start_unasked();
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
        let refused = until("the certificate is refused", SOON, || {
            status(&path(transport), "skyra", "local").filter(|said| said["last_error"].is_string())
        });
        assert!(refused["last_error"].as_str().unwrap().contains("certificate"), "{refused}");
        agent.stop();
        let agent = start("cert.pem");
        drained(&outbox(&path(transport), "skyra", "local"));
        agent.stop();
    }
    assert_eq!(inbox(&path("data")).len(), 3);
    gate.stop();
}

#[test]
fn an_agent_killed_between_storing_and_sending_delivers_after_its_restart() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Launch::edge(edge.path(), nowhere()).start();
    send(&agent, 0..20);
    agent.kill();
    let file = outbox(edge.path(), "skyra", "local");
    assert_eq!(ids(&file).len(), 20, "it was in the file before anything was said or sent");
    let gate = Gate::on(data.path());
    let agent = Launch::edge(edge.path(), gate.address()).start();
    drained(&file);
    assert_eq!(inbox(data.path()).len(), 20, "nobody had to come back for it");
    agent.stop();
}

#[test]
fn an_agent_that_is_told_to_stop_keeps_what_it_could_not_send() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    send(&agent, 0..5);
    let waiting = until("every row has been attempted", SOON, || {
        status(edge.path(), "skyra", "local").filter(|said| said["retrying"] == 5)
    });
    assert_eq!(waiting["depth"], 5, "{waiting}");
    assert!(waiting["last_error"].as_str().unwrap().contains("cannot connect"), "{waiting}");
    assert!(waiting["oldest_age_seconds"].is_u64(), "{waiting}");
    let stderr = agent.stderr();
    assert!(stderr.contains("kept for later"), "{stderr}");
    agent.stop();
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")).len(), 5);
}

/// `admit edge invalid …` on an agent's folder.
fn invalid(edge: &Path, words: &[&str]) -> Output {
    let data = ["--data", edge.to_str().unwrap()];
    let words = [&["edge", "invalid"], words, &data].concat();
    admit(&words).output().unwrap()
}

/// What `admit edge invalid list` shows.
fn listed(edge: &Path) -> Vec<Value> {
    let output = invalid(edge, &["list", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said["invalid"].as_array().unwrap().clone()
}

#[test]
fn what_is_no_envelope_is_nacked_by_the_agent_and_kept_until_a_person_decides() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    let mut envelope = skyra::envelope(1);
    envelope["ts"] = json!("yesterday");
    let body = envelope.to_string();
    for mut wire in Wire::all(&agent) {
        let answer = wire.say(body.as_bytes());
        let message = assert_nacked(&answer, Some(&skyra::id(1)), "invalid_envelope");
        assert!(message.starts_with("invalid envelope"), "{message}");
    }
    let answer = agent.client().send("POST", DOOR, &[], b"no json \xff").unwrap().json();
    assert_nacked(&answer, None, "invalid_envelope");
    agent.kill();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    let said = status(edge.path(), "skyra", "local").unwrap();
    assert_eq!((&said["depth"], &said["invalid"]), (&json!(0), &json!(2)), "{said}");
    let kept = listed(edge.path());
    let seen: Vec<_> = kept.iter().map(|one| (&one["event_id"], &one["seen_count"])).collect();
    assert_eq!(seen, [(&json!(skyra::id(1)), &json!(3)), (&json!(null), &json!(1))]);
    assert_eq!(kept[0]["payload"], body, "byte for byte");
    assert!(kept[0]["last_error"].as_str().unwrap().contains("ts must be"), "{kept:?}");

    let names: Vec<&str> = kept.iter().map(|one| one["envelope"].as_str().unwrap()).collect();
    let retried = invalid(edge.path(), &["retry", names[0]]);
    assert_eq!(retried.status.code(), Some(1));
    let error = String::from_utf8_lossy(&retried.stderr).into_owned();
    assert!(error.contains("still invalid: ts must be"), "{error}");
    assert!(invalid(edge.path(), &["delete", names[1]]).status.success());
    assert_eq!(invalid(edge.path(), &["delete", names[1]]).status.code(), Some(1), "it is gone");
    assert_eq!(listed(edge.path()).len(), 1, "the other is still there");
    agent.stop();
}

#[test]
fn an_invalid_envelope_that_a_person_retries_is_sent_once_it_is_valid() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(data.path());
    let agent = Launch::edge(edge.path(), gate.address())
        .variable("ADMIT_LIMITS__JSON_DEPTH_MAX", "3")
        .start();
    let mut deep = skyra::envelope(1);
    deep["payload"]["a"] = json!({ "b": { "c": 1 } });
    let body = deep.to_string();
    let answer = agent.client().send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
    assert_nacked(&answer, None, "invalid_envelope");
    let kept = listed(edge.path());
    let name = kept[0]["envelope"].as_str().unwrap();
    // The rules of the person's config are others than the agent's.
    let retried = invalid(edge.path(), &["retry", name]);
    assert!(retried.status.success(), "{}", String::from_utf8_lossy(&retried.stderr));
    until("the running agent sends it", SOON, || {
        inbox(data.path()).iter().any(|row| row.payload == body).then_some(())
    });
    assert!(listed(edge.path()).is_empty());
    drained(&outbox(edge.path(), "skyra", "local"));
    agent.stop();
    gate.stop();
}

#[test]
fn a_damaged_outbox_keeps_its_own_door_closed_and_no_other() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    send(&agent, 0..1);
    agent.stop();
    let file = outbox(edge.path(), "skyra", "local");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [b"no database".as_slice(), &whole[11..]].concat()).unwrap();

    let agent = Launch::edge(edge.path(), nowhere()).start();
    let refused = agent.client().send("POST", DOOR, &[], skyra::text(1).as_bytes()).unwrap();
    let message = assert_nacked(&refused.json(), Some(&skyra::id(1)), "storage_unavailable");
    assert!(message.contains("cannot be opened"), "{message}");
    let key = [("Idempotency-Key", "one")];
    let taken = agent.client().send("POST", "/v1/events", &key, b"{}").unwrap();
    assert_eq!(taken.status, 201, "another door of the agent: {}", taken.json());
    assert_eq!(agent.client().send("GET", "/readyz", &[], b"").unwrap().status, 200);
    let metrics = agent.client().send("GET", "/metrics", &[], b"").unwrap();
    let closed = r#"admit_edge_outbox_closed{door="skyra",producer="local"} 1"#;
    assert!(String::from_utf8(metrics.body).unwrap().contains(closed));
    let output = admit(["edge", "status", "--json", "--data", edge.path().to_str().unwrap()]);
    let output = { output }.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "what cannot be read is an error");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let doors: Vec<&Value> =
        said["outboxes"].as_array().unwrap().iter().map(|one| &one["door"]).collect();
    assert_eq!(doors, ["events/default", "skyra"], "and the others are shown: {said}");

    // Mended while the agent runs.
    std::fs::write(&file, whole).unwrap();
    send(&agent, 1..2);
    assert_eq!(ids(&file).len(), 2, "what waited in it still waits");
    agent.stop();
}

#[test]
fn the_status_of_a_folder_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no-such-agent");
    for words in [&["edge", "status"][..], &["edge", "invalid", "list"]] {
        let data = ["--data", missing.to_str().unwrap()];
        let output = admit([words, &data].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("there is no folder") && error.contains("--data"), "{error}");
        assert!(!missing.exists(), "nothing is made");
    }
    let data = ["edge", "status", "--data", folder.path().to_str().unwrap()];
    let output = admit(data).output().unwrap();
    assert!(output.status.success(), "an agent's folder may be empty");
}

#[test]
fn the_same_id_twice_is_one_row_and_with_other_content_both_reach_the_gate() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let street = street();
    let agent = Launch::edge(edge.path(), street.address()).start();
    send(&agent, 0..1);
    send(&agent, 0..1);
    let mut other = skyra::envelope(0);
    other["payload"]["confidence"] = json!(0.1);
    let body = other.to_string();
    let answer = agent.client().send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
    assert_acked(&answer, &skyra::id(0));
    let file = outbox(edge.path(), "skyra", "local");
    assert_eq!(ids(&file).len(), 2, "the copy is one with the first, the other waits beside it");

    let gate = Gate::on(data.path());
    street.move_to(gate.address());
    drained(&file);
    let rows = inbox(data.path());
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].payload, skyra::text(0), "the first is kept");
    let conflicts = gate.client().get("/v1/quarantine");
    assert!(conflicts.to_string().contains("conflict"), "the other is listed: {conflicts}");
    agent.stop();
}

#[test]
fn a_full_outbox_is_said_in_the_words_of_the_door_and_empties_again() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let street = street();
    let agent = Launch::edge(edge.path(), street.address())
        .variable("ADMIT_EDGE__OUTBOX_BYTES_MAX", "200000")
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "500")
        .start();
    let mut client = agent.client();
    let mut stored = 0;
    let full = loop {
        let body = skyra::text(stored);
        let answer = client.send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
        if answer["status"] != "stored" {
            break answer;
        }
        stored += 1;
        assert!(stored < 2_000, "there is a budget");
    };
    let message = assert_nacked(&full, Some(&skyra::id(stored)), "storage_unavailable");
    assert!(message.contains("full"), "{message}");
    assert!(stored > 100, "{stored} events fit");

    let gate = Gate::on(data.path());
    street.move_to(gate.address());
    drained(&outbox(edge.path(), "skyra", "local"));
    send(&agent, stored..stored + 1);
    agent.stop();
    gate.stop();
}

#[test]
fn the_agent_listens_on_a_socket_of_its_own_user_and_counts_what_it_does() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
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
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"stored\""), "{answer}");
    assert_eq!(ids(&outbox(edge.path(), "skyra", "local")), [skyra::id(7)]);

    let metrics = agent.client().send("GET", "/metrics", &[], b"").unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    let labels = r#"{door="skyra",producer="local"}"#;
    for line in [
        format!("admit_edge_outbox_depth{labels} 1"),
        format!("admit_edge_outbox_enqueued_total{labels} 1"),
        format!("admit_edge_outbox_connected{labels} 0"),
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }
    agent.stop();
    assert!(!path.exists(), "it takes its socket with it");
}

#[test]
fn a_second_agent_on_the_folder_is_refused() {
    let edge = tempfile::tempdir().unwrap();
    let agent = Launch::edge(edge.path(), nowhere()).start();
    send(&agent, 0..1);
    let ended = Launch::edge(edge.path(), nowhere()).start_in_vain();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("another process uses the outbox"), "{}", ended.stderr);
    agent.stop();
}

#[test]
fn a_network_that_cuts_stalls_and_repeats_delivers_each_event_once() {
    let seed = 6;
    for transport in ["websocket", "grpc", "http"] {
        let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let gate = Gate::on(data.path());
        let street = street();
        street.move_to(gate.address());
        street.set_faults(Faults {
            cut_one_in: 15,
            stall_one_in: 12,
            stall: std::time::Duration::from_millis(50),
            duplicate_one_in: 3,
            ..Faults::default()
        });
        let agent = Launch::edge(edge.path(), street.address())
            .variable("ADMIT_EDGE__TRANSPORT", transport)
            .variable("ADMIT_EDGE__ACK_MS_MAX", "500")
            .variable("ADMIT_EDGE__BACKOFF_MS_BASE", "20")
            .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "200")
            .start();
        send(&agent, 0..150);
        drained(&outbox(edge.path(), "skyra", "local"));
        let mut came: Vec<String> =
            inbox(data.path()).into_iter().map(|row| row.event_id).collect();
        came.sort();
        let wanted: Vec<String> = (0..150).map(skyra::id).collect();
        assert_eq!(came, wanted, "{transport}, seed {seed}");
        agent.stop();
        gate.stop();
    }
}
