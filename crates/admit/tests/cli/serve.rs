//! `admit serve`, from start to shutdown.

use std::net::TcpListener;

use crate::world::{SAMPLE, World};

#[test]
fn a_gate_prints_its_address_and_admits_an_event_once() {
    let world = World::new();
    let gate = world.serve(&[]);
    assert_eq!(gate.first["doors"][0]["path"], "/plugin/events");
    for disposition in ["processed", "duplicate", "duplicate"] {
        let (status, body) = gate.post("/plugin/events", "", SAMPLE);
        assert_eq!(status, 200);
        assert!(body.contains(&format!(r#""disposition":"{disposition}""#)), "{body}");
    }
}

#[test]
fn the_example_of_the_readme_gets_the_response_in_the_readme() {
    let readme = include_str!("../../../../README.md");
    let (line, rest) = readme.split_once(" -d '").expect("a curl line");
    let (body, rest) = rest.split_once('\'').expect("its end");
    let is_response = |line: &&str| line.starts_with("{\"receipt_id\"");
    let promised = rest.lines().find(is_response).expect("a response");
    let (_, key) = line.rsplit_once("Idempotency-Key: ").expect("a key");
    let (key, _) = key.split_once('\'').expect("its end");
    let world = World::new();
    let gate = world.serve(&[]);
    let header = format!("Idempotency-Key: {key}\r\n");
    let (status, first) = gate.post("/v1/events", &header, body);
    assert_eq!(status, 201);
    assert_eq!(gate.post("/v1/events", &header, body), (201, first.clone()), "a copy");
    let comparable = |text: &str| {
        let mut response: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let time = response["received_at"].take();
        assert_eq!(time.as_str().map(str::len), Some("2026-02-19T18:14:02.000Z".len()));
        let receipt = response["receipt_id"].take();
        assert!(receipt.as_str().is_some_and(|id| id.starts_with("rcp-") && id.ends_with("-1")));
        response
    };
    assert_eq!(comparable(&first), comparable(promised));
}

#[test]
fn a_stop_signal_drains_the_gate_and_it_exits_with_zero() {
    for signal in ["TERM", "INT"] {
        let world = World::new();
        let mut gate = world.serve(&[]);
        gate.post("/plugin/events", "", SAMPLE);
        gate.signal(signal);
        let log = gate.log();
        assert_eq!(gate.wait().code(), Some(0), "{log}");
        assert!(log.contains(&format!("SIG{signal}")), "{log}");
    }
}

#[test]
fn an_admitted_event_is_a_duplicate_after_a_restart() {
    let world = World::new();
    let mut gate = world.serve(&[]);
    gate.post("/plugin/events", "", SAMPLE);
    gate.signal("KILL");
    gate.wait();
    let (_, body) = world.serve(&[]).post("/plugin/events", "", SAMPLE);
    assert!(body.contains(r#""disposition":"duplicate""#), "{body}");
}

#[test]
fn a_second_gate_on_a_data_folder_is_refused_with_the_process_id_of_the_first() {
    let world = World::new();
    let first = world.serve(&[]);
    let output = world.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.code, Some(1));
    let shown = output.err.replace(&first.pid().to_string(), "PID");
    insta::assert_snapshot!(shown, @r"
    admit: another gate (process PID) already serves ./admit-data
      stop it first, or give this one its own folder with --data
    ");
}

#[test]
fn a_port_in_use_is_reported() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    let output = world.run(&["serve", "--listen", &address]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err.replace(&address, "ADDRESS"), @r"
    admit: cannot listen on ADDRESS: another program listens there
      stop it, or choose another port with --listen (port 0 takes any free one)
    ");
    assert!(!world.path().join("admit-data").exists(), "nothing was touched");
}

#[test]
fn an_address_of_another_machine_is_reported() {
    let world = World::new();
    world.write("my.toml", "[[principals]]\nname = \"a\"\nkeys = [\"a-key-long-enough\"]\n");
    // 192.0.2.0/24 is for documentation; no machine has it.
    let output = world.run(&["serve", "--config", "my.toml", "--listen", "192.0.2.1:8080"]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err, @r"
    admit: cannot listen on 192.0.2.1:8080: this machine has no such address
      choose one of this machine's own addresses with --listen
    ");
}

#[test]
fn an_unusable_data_folder_is_reported() {
    let world = World::new();
    world.write("file", "");
    let output = world.run(&["serve", "--listen", "127.0.0.1:0", "--data", "file/below"]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err, @r"
    admit: cannot use file/below: Not a directory (os error 20)
      check that the folder exists on a writable disk and that this user owns it
    ");
}

#[test]
fn json_logs_have_one_object_per_line() {
    let world = World::new();
    world.write("my.toml", "[log]\nformat = \"json\"\n");
    let mut gate = world.serve(&["--config", "my.toml"]);
    gate.signal("TERM");
    let log = gate.log();
    let messages: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"))
        .map(|line| line["message"].as_str().expect("a message").to_owned())
        .collect();
    assert_eq!(messages.first().map(String::as_str), Some("open"), "{log}");
    assert_eq!(messages.last().map(String::as_str), Some("stopped"), "{log}");
}

#[test]
fn a_gate_with_principals_requires_a_key_and_logs_none() {
    let world = World::new();
    world.write("arena.key", "hush-hush-hush-file\n");
    world.write(
        "my.toml",
        "[log]\nlevel = \"trace\"\n\
         [[principals]]\nname = \"arena\"\nkeys = [\"hush-hush-literal\", \"file:arena.key\"]\n",
    );
    let mut gate = world.serve(&["--config", "my.toml"]);
    let (status, _) = gate.post("/plugin/events", "", SAMPLE);
    assert_eq!(status, 401);
    let (status, _) = gate.post("/plugin/events", "Authorization: Bearer hush-no\r\n", SAMPLE);
    assert_eq!(status, 401);
    for header in [
        "Authorization: Bearer hush-hush-literal\r\n",
        "X-Pixel-Control-Api-Key: hush-hush-hush-file\r\n",
    ] {
        let (status, _) = gate.post("/plugin/events", header, SAMPLE);
        assert_eq!(status, 200, "{header}");
    }
    gate.signal("TERM");
    let log = gate.log();
    assert!(!log.contains("hush"), "{log}");
}
