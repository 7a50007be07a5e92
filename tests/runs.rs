//! Scenario runs with the real binary: submit, validate, publish READY, stream, publish again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{RUN, artifact, document, topic};
use crate::support::intents::admit;
use crate::support::machine::{run, text};
use crate::support::pack::{READY_MESSAGE, golden, request};
use crate::support::{TIMEOUT, sql, wait_for};

/// Run id of the golden key.
const RUN_ID: &str = "df5647f07d4f430de9cfde91f3a454b6";
const CONTROL: &str = "fp.bus.control.v1";

fn launch(data: &Path) -> Launch {
    Launch::on(data).variable("PLATFORM_RUN_ID", RUN)
}

struct World {
    data: TempDir,
    gate: Gate,
}

impl World {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let gate = launch(data.path()).start();
        Self { data, gate }
    }

    /// Runs `admit runs …` with the address of the gate.
    fn runs(&self, words: &[&str]) -> (bool, String) {
        let listen = self.gate.address().to_string();
        let mut all = vec!["runs"];
        all.extend(words);
        all.extend(["--data", text(self.data.path())]);
        if words[0] != "status" {
            all.extend(["--listen", &listen]);
        }
        admit(&all)
    }

    fn write(&self, request: &Value) -> String {
        let path = self.data.path().join("request.json");
        fs::write(&path, request.to_string()).unwrap();
        text(&path).to_owned()
    }
}

/// The printed JSON; log lines may follow it.
fn parsed((ok, printed): (bool, String)) -> Value {
    assert!(ok, "{printed}");
    let mut values = serde_json::Deserializer::from_str(&printed).into_iter();
    values.next().and_then(Result::ok).unwrap_or_else(|| panic!("JSON, not {printed}"))
}

#[test]
fn a_run_is_submitted_streamed_and_published_again() {
    let world = World::new();
    let file = world.write(&request(text(&golden())));
    let reply = parsed(world.runs(&["submit", "--request", &file, "--json"]));
    // Also if the background sweep was first.
    assert_eq!(reply["message"], READY_MESSAGE);
    assert_eq!((&reply["run_id"], &reply["state"]), (&json!(RUN_ID), &json!("READY")));
    assert_eq!(reply["platform_run_id"], RUN);
    let facts = document(world.data.path(), reply["facts_view_ref"].as_str().unwrap());
    assert_eq!(facts["pins"]["scenario_run_id"], RUN_ID);

    let url = format!("http://{}", world.gate.address());
    let stream = ["stream", "--once", "--speedup", "0", "--json", "--gate", &url, "--data"];
    let streamed = parsed(admit(&[&stream[..], &[text(world.data.path())]].concat()));
    assert_eq!(streamed["messages"][0]["status"], "STREAMED", "{streamed}");
    assert_eq!(streamed["messages"][0]["admitted"], 12);

    let again = parsed(world.runs(&["reemit", RUN_ID, "--actor", "svc:operator", "--json"]));
    assert_eq!(again["message_id"], reply["message_id"]);
    let messages = topic(world.data.path(), CONTROL);
    let ids: Vec<&Value> = messages.iter().map(|line| &line["payload"]["message_id"]).collect();
    assert_eq!(ids, [&reply["message_id"], &reply["message_id"]]);
    let status = parsed(world.runs(&["status", RUN_ID, "--json"]));
    assert_eq!(status["publications"].as_array().unwrap().len(), 2);
    let record = status["record_ref"].as_str().unwrap();
    let record = fs::read_to_string(world.data.path().join("artifacts").join(record)).unwrap();
    assert!(record.contains("svc:operator"), "{record}");

    let (ok, table) = world.runs(&["submit", "--request", &file]);
    assert!(ok && table.contains("READY") && table.contains(RUN_ID), "{table}");
    world.gate.stop();
}

#[test]
fn the_streamer_finds_the_gate_by_its_data_folder_and_the_run_is_listed() {
    let world = World::new();
    let file = world.write(&request(text(&golden())));
    let (ok, printed) = world.runs(&["submit", "--request", &file]);
    assert!(ok, "{printed}");
    // The gate listens on a port that is in no config.
    let data = text(world.data.path());
    let stream = ["stream", "--once", "--speedup", "0", "--max-events-per-output", "2", "--json"];
    let streamed = parsed(admit(&[&stream[..], &["--data", data]].concat()));
    assert_eq!(streamed["messages"][0]["status"], "STREAMED", "{streamed}");
    let wrong = world.data.path().join("nowhere");
    let (ok, printed) = admit(&[&stream[..], &["--data", text(&wrong)]].concat());
    assert!(!ok && printed.contains("nowhere"), "{printed}");
    assert!(!wrong.exists(), "nothing is made in a folder that was a mistake");

    let runs = world.gate.client().get("/v1/runs?limit=1");
    assert_eq!(runs["next"], RUN, "{runs}");
    let run = &runs["runs"][0];
    assert_eq!((&run["platform_run_id"], &run["state"]), (&json!(RUN), &json!("open")), "{run}");
    assert_eq!(run["admit"], streamed["messages"][0]["admitted"]);
    let after = world.gate.client().get(&format!("/v1/runs?after={RUN}"));
    assert_eq!(after, json!({ "runs": [], "next": null }));
    let listed = parsed(admit(&["runs", "list", "--json", "--data", data]));
    assert_eq!(listed["runs"], runs["runs"]);
    let (ok, table) = admit(&["runs", "list", "--data", data]);
    assert!(ok && table.contains(RUN), "{table}");

    let report = world.gate.client().get(&format!("/v1/runs/{RUN}/report"));
    let knobs = &report["ready"]["sample"][0]["knobs"];
    assert_eq!(knobs["max_events_per_output"], 2, "{report}");
    let log = format!("artifacts/fraud-platform/{RUN}/obs/governance/events.jsonl");
    let log = fs::read_to_string(world.data.path().join(log)).unwrap();
    assert_eq!(log.matches("RUN_READY_SEEN").count(), 1, "{log}");
    world.gate.stop();
}

#[test]
fn a_run_survives_its_gate_and_is_returned_by_the_next() {
    let World { data, gate } = World::new();
    let mut client = gate.client();
    let body = request(text(&golden())).to_string();
    let first = client.send("POST", "/runs", &[], body.as_bytes()).unwrap().json();
    assert_eq!((&first["state"], &first["message"]), (&json!("READY"), &json!(READY_MESSAGE)));
    gate.kill();
    let gate = launch(data.path()).start();
    let again = gate.client().send("POST", "/runs", &[], body.as_bytes()).unwrap();
    assert_eq!((again.status, again.json()), (200, first.clone()));
    assert_eq!(gate.client().get(&format!("/runs/{RUN_ID}")), first);
    assert_eq!(topic(data.path(), CONTROL).len(), 1);
    gate.stop();
}

#[test]
fn lost_files_of_a_ready_run_are_restored_at_the_next_start_and_at_run_time() {
    let World { data, gate } = World::new();
    let body = request(text(&golden())).to_string();
    let ready = gate.client().send("POST", "/runs", &[], body.as_bytes()).unwrap().json();
    assert_eq!(ready["state"], "READY", "{ready}");
    gate.stop();
    let facts = artifact(data.path(), ready["facts_view_ref"].as_str().unwrap());
    let sr = facts.parent().unwrap().parent().unwrap().to_owned();
    let kept = fs::read(&facts).unwrap();
    fs::remove_dir_all(&sr).unwrap();
    let gate = launch(data.path()).variable("ADMIT_RUNNER__RESTORE_EVERY_SECONDS", "1").start();
    let back = |file: &Path| wait_for("the file is back", TIMEOUT, || file.exists().then_some(()));
    back(&facts);
    assert_eq!(fs::read(&facts).unwrap(), kept);
    let status = sr.join("run_status").join(format!("{RUN_ID}.json"));
    back(&status);
    fs::remove_file(&status).unwrap();
    back(&status);
    gate.stop();
}

#[test]
fn the_lease_of_a_killed_gate_delays_no_run() {
    if sql::skip_on_postgres() {
        return;
    }
    let World { data, gate } = World::new();
    gate.kill();
    let lease = format!(
        "INSERT INTO sr_run_leases (run_id, owner_id, lease_token, expires_at, updated_at)
         VALUES ('{RUN_ID}', 'gate that was killed', 'its token', {}, 0)",
        i64::MAX,
    );
    sql::execute(data.path(), &lease);
    let gate = launch(data.path()).start();
    let body = request(text(&golden())).to_string();
    let reply = gate.client().send("POST", "/runs", &[], body.as_bytes()).unwrap().json();
    assert_eq!((&reply["state"], &reply["message"]), (&json!("READY"), &json!(READY_MESSAGE)));
    gate.stop();
}

/// Gate that checks every second for the pack of a run, and the path of that pack.
fn waiting_for_evidence() -> (World, PathBuf) {
    let data = tempfile::tempdir().unwrap();
    let gate = launch(data.path()).variable("ADMIT_RUNNER__LOOK_EVERY_SECONDS", "1").start();
    let pack = data.path().join("pack");
    let body = request(text(&pack)).to_string();
    let waiting = gate.client().send("POST", "/runs", &[], body.as_bytes()).unwrap();
    assert_eq!((waiting.status, &waiting.json()["state"]), (202, &json!("WAITING_EVIDENCE")));
    (World { data, gate }, pack)
}

#[test]
fn late_evidence_is_found_without_a_request() {
    let (World { data, gate }, pack) = waiting_for_evidence();
    std::os::unix::fs::symlink(golden(), &pack).unwrap();
    wait_for("the run is ready", TIMEOUT, || {
        let standing = gate.client().send("GET", &format!("/runs/{RUN_ID}"), &[], b"").unwrap();
        (standing.json()["state"] == "READY").then_some(())
    });
    wait_for("the message is published again", TIMEOUT, || {
        (topic(data.path(), CONTROL).len() == 1).then_some(())
    });
    gate.stop();
}

#[test]
fn a_pack_that_hangs_on_read_does_not_prevent_shutdown() {
    let (World { data, gate }, pack) = waiting_for_evidence();
    // A reader of this pipe blocks, because nothing is written to it.
    let made = data.path().join("made");
    fs::create_dir(&made).unwrap();
    let receipt = made.join("run_receipt.json");
    run("mkfifo", [text(&receipt)]).unwrap();
    let _both_ends = fs::OpenOptions::new().read(true).write(true).open(&receipt).unwrap();
    fs::rename(&made, &pack).unwrap();
    let receipt = pack.join("run_receipt.json");
    wait_for("the gate reads it", TIMEOUT, || has_open(gate.pid(), &receipt).then_some(()));
    gate.stop();
}

/// Whether a process has a file open.
fn has_open(pid: u32, file: &Path) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.map(|open| fs::read_link(open.path())).any(|open| open.is_ok_and(|open| open == file))
}

#[test]
fn refusals_carry_the_reason_codes_of_the_contract() {
    let world = World::new();
    let mut client = world.gate.client();
    let mut post = |path: &str, body: &str| {
        let answer = client.send("POST", path, &[], body.as_bytes()).unwrap();
        let reply = answer.json();
        if answer.status >= 400 {
            assert_eq!((&reply["retryable"], reply["detail"].is_string()), (&false.into(), true));
        }
        (answer.status, reply["error"].as_str().unwrap_or_default().to_owned())
    };
    let known = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(post("/runs", "{}"), known(400, "RUN_REQUEST_INVALID"));
    let mut other = request(text(&golden()));
    assert_eq!(post("/runs", &other.to_string()).0, 200);
    other["seed"] = 43.into();
    assert_eq!(post("/runs", &other.to_string()), known(409, "EQUIV_KEY_COLLISION"));
    let reemit = format!("/runs/{RUN_ID}/reemit");
    let terminal = r#"{"reemit_kind":"TERMINAL_ONLY"}"#;
    assert_eq!(post(&reemit, terminal), known(409, "REEMIT_TERMINAL_ONLY_MISMATCH"));
    let elsewhere = r#"{"emit_platform_run_id":"platform_20270101T000000Z"}"#;
    assert_eq!(post(&reemit, elsewhere), known(403, "CROSS_RUN_OVERRIDE_REQUIRED"));
    let unknown = format!("/runs/{}/reemit", "0".repeat(32));
    assert_eq!(post(&unknown, "{}"), known(404, "RUN_NOT_FOUND"));
    for _ in 0..10 {
        assert_eq!(post(&reemit, "{}").0, 200);
    }
    let busy = world.gate.client().send("POST", &reemit, &[], b"{}").unwrap();
    let reply = busy.json();
    assert_eq!((busy.status, &reply["error"]), (429, &"REEMIT_RATE_LIMIT".into()), "{reply}");
    assert_eq!(reply["retryable"], true);
    let wait = reply["retry_after_seconds"].as_u64().unwrap();
    assert!(wait > 5, "about the window of the rate limit: {reply}");
    assert_eq!(busy.header("retry-after"), Some(wait.to_string().as_str()));
    let (ok, printed) = world.runs(&["submit", "--key", "x"]);
    assert!(!ok && printed.contains("RUN_REQUEST_INVALID"), "{printed}");
    let (ok, printed) = world.runs(&["status", "0"]);
    assert!(!ok && printed.contains("no run"), "{printed}");
    world.gate.stop();
}

#[test]
fn only_operators_submit_runs_and_only_packs_in_the_folder_are_read() {
    let data = tempfile::tempdir().unwrap();
    let packs = data.path().join("packs");
    fs::create_dir(&packs).unwrap();
    let config = data.path().join("admit.toml");
    let written = format!(
        "[runner]\npacks = {:?}\n\n[[principals]]\nname = \"producer\"\n\
         keys = [\"producer-key-0123456789\"]\n\n[[principals]]\nname = \"operator\"\n\
         keys = [\"operator-key-0123456789\"]\nrole = [\"read\", \"operate\"]\n",
        text(&packs)
    );
    fs::write(&config, written).unwrap();
    let gate = launch(&data.path().join("data")).argument("--config").argument(&config).start();
    let body = request(text(&golden())).to_string();
    let status_with = |key: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        gate.client().send("POST", "/runs", &headers, body.as_bytes()).unwrap()
    };
    for (key, status, code) in
        [("an-unknown-key", 401, "UNAUTHORIZED"), ("producer-key-0123456789", 403, "FORBIDDEN")]
    {
        let refused = status_with(key);
        let reply = refused.json();
        assert_eq!((refused.status, &reply["error"]), (status, &code.into()), "{reply}");
        assert!(reply["detail"].is_string() && reply["retryable"] == false, "{reply}");
    }
    let bearer = ("Authorization", "Bearer operator-key-0123456789");
    let large = vec![b' '; 2 << 20];
    for (method, path, body, status, code) in [
        ("PUT", "/runs", &b"{}"[..], 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/runs", &large, 413, "PAYLOAD_TOO_LARGE"),
        ("GET", "/runs/a/b/c", b"", 404, "NOT_FOUND"),
    ] {
        let refused = gate.client().send(method, path, &[bearer], body).unwrap();
        let reply = refused.json();
        assert_eq!((refused.status, &reply["error"]), (status, &code.into()), "{reply}");
        assert!(reply["detail"].is_string() && reply["retryable"] == false, "{reply}");
    }
    let answer = status_with("operator-key-0123456789").json();
    assert_eq!(answer["state"], "WAITING_EVIDENCE", "{answer}");
    let record = answer["record_ref"].as_str().unwrap();
    let record = fs::read_to_string(data.path().join("data/artifacts").join(record)).unwrap();
    assert!(record.contains("runner.packs"), "{record}");
    gate.stop();
}

#[test]
fn verify_finds_inconsistent_scenario_runs_and_repair_restores_their_files() {
    let world = World::new();
    let file = world.write(&request(text(&golden())));
    let printed = parsed(world.runs(&["submit", "--request", &file, "--json"]));
    let path = world.data.path().to_owned();
    let facts = printed["facts_view_ref"].as_str().unwrap().to_owned();
    let run = |words: &[&str]| admit(&[words, &["--data", text(&path)]].concat());
    // Files are written after the commit.
    let agreed = || run(&["verify"]).0.then_some(());
    wait_for("verify agrees with a run that is READY", TIMEOUT, agreed);
    let file = artifact(&path, &facts);
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let (agrees, printed) = run(&["verify"]);
    assert!(
        !agrees && printed.contains("scenario: ") && printed.contains("is missing"),
        "{printed}"
    );
    let (is_done, printed) = run(&["repair"]);
    assert!(is_done && printed.contains("1 file and "), "{printed}");
    assert_eq!(fs::read(&file).unwrap(), kept);
    let World { data, gate } = world;
    gate.stop();

    let other = "replace(text, 'bundle_hash\":\"', 'bundle_hash\":\"0')";
    let back = "replace(text, 'bundle_hash\":\"0', 'bundle_hash\":\"')";
    let of = "WHERE kind = 'run_facts_view'";
    for (spoil, mend, expected) in [
        (
            format!("UPDATE sr_run_document SET text = {other} {of}"),
            format!("UPDATE sr_run_document SET text = {back} {of}"),
            "does not match its facts",
        ),
        (
            "UPDATE sr_run SET state = 'LOST'".to_owned(),
            "UPDATE sr_run SET state = 'READY'".to_owned(),
            "or not a known state",
        ),
        (
            "UPDATE sr_run_event SET run_id = 'x' || run_id".to_owned(),
            "UPDATE sr_run_event SET run_id = substr(run_id, 2)".to_owned(),
            "which does not exist",
        ),
    ] {
        sql::execute(data.path(), &spoil);
        let (agrees, printed) = admit(&["verify", "--data", text(data.path())]);
        assert!(!agrees && printed.contains(expected), "{spoil}: {printed}");
        sql::execute(data.path(), &mend);
        let (agrees, printed) = admit(&["verify", "--data", text(data.path())]);
        assert!(agrees, "{mend}: {printed}");
    }
}
