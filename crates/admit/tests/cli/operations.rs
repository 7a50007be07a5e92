//! Commands for keys, completions and ledger status, and TLS of a gate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::world::{SAMPLE, World};

#[test]
fn a_new_key_is_printed_once_with_its_config_entry() {
    let world = World::new();
    let new_key = world.run(&["keys", "new", "--name", "arena-1", "--json"]).json();
    let (key, form) = (new_key["key"].as_str().unwrap(), new_key["config"].as_str().unwrap());
    assert!(key.starts_with("admit_") && key.len() == 6 + 64, "{key}");
    assert_ne!(world.run(&["keys", "new", "--json"]).json()["key"], new_key["key"]);
    world
        .write("admit.toml", &format!("[[principals]]\nname = \"arena-1\"\nkeys = [\"{form}\"]\n"));
    let gate = world.serve(&["--config", "admit.toml"]);
    let bearer = format!("Authorization: Bearer {key}\r\n");
    assert_eq!(gate.post("/plugin/events", &bearer, SAMPLE).0, 200);
    assert_eq!(gate.post("/plugin/events", "", SAMPLE).0, 401);
    assert_eq!(gate.post("/plugin/events", "Authorization: Bearer admit_00\r\n", SAMPLE).0, 401);
    let people = world.run(&["keys", "new", "--name", "arena-2"]);
    assert!(people.err.contains("name = \"arena-2\""), "{}", people.err);
    let alone = people.out.trim_end();
    assert!(alone.starts_with("admit_") && alone.len() == 6 + 64, "nothing but the key: {alone}");
    assert_eq!(world.run(&["keys", "new", "--name", "a:b"]).code, Some(2));
}

#[test]
fn a_key_is_hashed_from_standard_input_and_never_printed() {
    let world = World::new();
    let hash = |text: &str| {
        let mut command = world.admit(&["keys", "hash"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(text.trim().is_empty() || !err.contains(text.trim()), "{err}");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let known = "sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf\n";
    assert_eq!(hash("abcdefghijklmnop\n"), (Some(0), known.to_owned()));
    for wrong in ["", "\n", "two words of some length", "a-short-one"] {
        assert_eq!(hash(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn completions_contain_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = World::new().run(&["completions", shell]);
        assert_eq!(output.code, Some(0), "{shell}: {}", output.err);
        assert!(output.out.contains("quarantine") && output.out.contains("verify"), "{shell}");
    }
    assert_eq!(World::new().run(&["completions", "tcsh"]).code, Some(2));
}

#[test]
fn the_ledger_status_is_available_while_the_gate_runs() {
    let world = World::new();
    assert_eq!(world.run(&["ledger", "status"]).code, Some(1), "no ledger exists yet");
    let gate = world.serve(&[]);
    for _ in 0..3 {
        assert_eq!(gate.post("/plugin/events", "", SAMPLE).0, 200);
    }
    let status = world.run(&["ledger", "status", "--json"]).json();
    assert_eq!((&status["admissions"], &status["sightings"]), (&1.into(), &2.into()), "{status}");
    assert_eq!((&status["last_seq"], &status["retain"]), (&3.into(), &"forever".into()));
    assert!(status["bytes"].as_u64().unwrap() > 0 && status["oldest_at"].is_string(), "{status}");
    let people = world.run(&["ledger", "status"]).out;
    assert!(people.contains("admissions    1\n") && people.contains("forever"), "{people}");
    assert!(status["horizon"].is_null() && !people.contains("horizon"), "{people}");
}

#[test]
fn the_horizon_is_shown_before_anything_is_removed() {
    let world = World::new();
    world.write("admit.toml", "[ledger]\nretain = \"90d\"\n");
    let _gate = world.serve(&["--config", "admit.toml"]);
    let status = world.run(&["ledger", "status", "--json", "--config", "admit.toml"]).json();
    assert_eq!((&status["retain"], &status["removed_keys"]), (&"90d".into(), &0.into()));
    let horizon = status["horizon"].as_str().expect("a time").to_owned();
    assert!(status["forgotten_to"].is_null() && horizon.ends_with('Z'), "{status}");
    let people = world.run(&["ledger", "status", "--config", "admit.toml"]).out;
    assert!(people.contains("horizon ") && people.contains("events before it are refused"));
}

#[test]
fn a_gate_with_a_certificate_serves_tls_and_refuses_plain_text() {
    let world = World::new();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    world.write("cert.pem", &cert.pem());
    world.write("key.pem", &signing_key.serialize_pem());
    world.write("admit.toml", "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n");
    assert_eq!(world.run(&["config", "check", "admit.toml"]).code, Some(0));
    let gate = world.serve(&["--config", "admit.toml"]);

    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, TcpStream::connect(gate.address).unwrap());
    let length = SAMPLE.len();
    let request = format!(
        "POST /plugin/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{SAMPLE}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains("\"disposition\":\"processed\""), "{response}");
    assert_eq!(gate.post("/plugin/events", "", SAMPLE).0, 400, "plain text is refused");

    world.write("key.pem", "gone");
    let broken = world.run(&["config", "check", "admit.toml"]);
    assert_eq!(broken.code, Some(2));
    assert!(broken.err.contains("key.pem"), "{}", broken.err);
}
