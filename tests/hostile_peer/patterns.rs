//! Schemas and events that are expensive to validate.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::events::{configured, problem};
use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::HttpResponse;

const SHARED: &str = "\
[[principals]]
name = \"a\"
keys = [\"a-key-of-the-tests\"]
role = \"produce\"
[[principals]]
name = \"b\"
keys = [\"b-key-of-the-tests\"]
role = \"produce\"
[[principals]]
name = \"ops\"
keys = [\"o-key-of-the-tests\"]
role = \"operate\"
";

/// A schema whose validation time doubles with each level of the event.
fn doubling() -> Value {
    let branch = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}});
    json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"oneOf": [
            {"allOf": [branch, {"required": ["x"]}]},
            {"allOf": [branch, {"required": ["y"]}]},
            {"type": "string"},
        ]}},
    })
}

/// A schema with thirty levels that each double the validation time, for any text. Every text is valid,
/// and memoization does not help.
fn doubling_for_any_text() -> Value {
    let level = |n: u32| {
        let inner = json!({"$ref": format!("#/$defs/n{}", n + 1)});
        json!({"oneOf": [
            {"allOf": [inner, {"maxLength": 4}]},
            {"allOf": [inner, {"minLength": 5}]},
        ]})
    };
    let mut levels: serde_json::Map<_, _> = (0..30).map(|n| (format!("n{n}"), level(n))).collect();
    levels.insert("n30".to_owned(), json!({"type": "string"}));
    json!({"properties": {"text": {"$ref": "#/$defs/n0"}}, "$defs": levels})
}

fn with_schema(data: &Path, schema: &Value) -> String {
    std::fs::write(data.join("schema.json"), schema.to_string()).unwrap();
    format!(
        "{SHARED}[[doors.events]]\nname = \"plain\"\nidentity = \"body\"\n\
         [[doors.events]]\nname = \"strict\"\nidentity = \"body\"\nschemas = {{ \"*\" = \"schema.json\" }}\n"
    )
}

/// Sends requests of others until all `expensive` ones are answered, as counted in `answered`. Asserts that
/// some got a response while none of the expensive ones did, so they did not wait for one of these.
fn assert_undisturbed(name: &str, answered: &AtomicUsize, expensive: usize, send: impl Fn(usize)) {
    let (mut undisturbed, mut count) = (0, 0);
    loop {
        let before = answered.load(Ordering::SeqCst);
        if before == expensive {
            break;
        }
        send(count);
        count += 1;
        undisturbed += usize::from(answered.load(Ordering::SeqCst) == before);
    }
    assert!(undisturbed > 0, "each of {count} requests of {name} waited for an expensive one");
}

fn post(gate: &Gate, key: &str, path: &str, body: &str) -> HttpResponse {
    let key = format!("Bearer {key}-key-of-the-tests");
    let headers = [("Authorization", key.as_str())];
    gate.client().send("POST", path, &headers, body.as_bytes()).expect("response from the gate")
}

/// A small event whose validation never finishes.
fn costly(n: usize) -> String {
    json!({"text": format!("number {n}")}).to_string()
}

/// A small, deeply nested event that violates the recursive schema at its innermost level.
fn deep(n: usize) -> String {
    format!("{}{n}{}", r#"{"x":0,"y":0,"a":"#.repeat(100), "}".repeat(100))
}

#[test]
fn a_pattern_without_linear_matching_is_refused_with_its_file_and_pointer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admit.toml");
    for pattern in ["^(?=(a+)+b).*$", r"^(\w+)-\1$", "(?<!x)y"] {
        let schema = json!({"properties": {"name": {"type": "string", "pattern": pattern}}});
        std::fs::write(&file, with_schema(folder.path(), &schema)).unwrap();
        let checked = admit(["config", "check", file.to_str().unwrap()]).output().unwrap();
        let output =
            String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
        assert!(!checked.status.success(), "{pattern}: {output}");
        let exit = Launch::on(&folder.path().join("data"))
            .argument("--config")
            .argument(&file)
            .start_expecting_exit();
        assert!(!exit.status.success());
        for output in [output, exit.stderr] {
            for named in ["schema.json", "/properties/name/pattern", &format!("{pattern:?}")] {
                assert!(output.contains(named), "{named} not in {output}");
            }
        }
    }
}

#[test]
fn a_policy_with_a_pattern_without_linear_matching_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("payload.json", r#"{"properties":{"n":{"pattern":"^(?!x).*$"}}}"#);
    write(
        "policy.yaml",
        "version: \"v0\"\npolicies:\n  - event_type: audit\n    class: traffic\n    payload_schema_ref: payload.json\n",
    );
    write("admit.toml", "[doors.ingestion-gate]\nschema_policy = \"policy.yaml\"\n");
    let file = folder.path().join("admit.toml");
    let checked = admit(["config", "check", file.to_str().unwrap()]).output().unwrap();
    let output = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(!checked.status.success(), "{output}");
    for named in ["policy.yaml:", "payload.json", "/properties/n/pattern", "\"^(?!x).*$\""] {
        assert!(output.contains(named), "{named} not in {output}");
    }
}

#[test]
fn events_whose_validation_never_finishes_are_refused_without_delaying_others() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &with_schema(folder.path(), &doubling_for_any_text()));
    let answered = AtomicUsize::new(0);
    let expensive = 4;
    thread::scope(|scope| {
        for n in 0..expensive {
            let (gate, answered) = (&gate, &answered);
            scope.spawn(move || {
                let response = post(gate, "a", "/v1/events/strict", &costly(n));
                answered.fetch_add(1, Ordering::SeqCst);
                let body: Value = serde_json::from_slice(&response.body).unwrap();
                let code = body["error"]["code"].as_str().unwrap_or_default();
                // On a slow machine too many may run at once; then the reply is `overloaded`.
                assert!(["invalid_envelope", "overloaded"].contains(&code), "{body}");
                assert_eq!(body["error"]["retryable"], code == "overloaded", "{body}");
            });
        }
        assert_undisturbed("another principal", &answered, expensive, |n| {
            let body = json!({"n": n}).to_string();
            assert_eq!(post(&gate, "b", "/v1/events/plain", &body).status, 201);
        });
    });
    let refused = post(&gate, "a", "/v1/events/strict", &costly(9));
    let reply = problem(&refused, 400, "invalid_envelope");
    assert!(reply.to_string().contains("more steps than one event may use"), "{reply}");
    gate.stop();
}

/// 4 KB of random letters, then a `c`: the matcher's cache does not help.
fn letters(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letter = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..4_095).map(letter).chain(['c']).collect()
}

#[test]
fn lines_that_are_slow_to_match_do_not_delay_requests_of_others() {
    let folder = tempfile::tempdir().unwrap();
    // Linear, but with hundreds of states per byte.
    let text = json!({"type": "string", "pattern": "^([ab]*a[ab]{600}c)?$"});
    let schema = json!({"properties": {"text": text}});
    let gate = configured(folder.path(), &with_schema(folder.path(), &schema));
    // With 15 lines the body is small enough to be validated on a serving thread.
    let lines = |request: u64| -> String {
        let line = |n| format!("{}\n", json!({"text": letters(request * 30 + n)}));
        (0..if request.is_multiple_of(2) { 15 } else { 30 }).map(line).collect()
    };
    // Enough requests to keep every serving thread busy.
    let requests = 8 * thread::available_parallelism().map_or(2, NonZero::get);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..requests {
            let client = gate.client().with("Authorization", "Bearer a-key-of-the-tests");
            let mut client = client.with("Content-Type", "application/x-ndjson");
            let (body, answered) = (lines(n as u64), &answered);
            scope.spawn(move || {
                let response = client.send("POST", "/v1/events/strict", &[], body.as_bytes());
                answered.fetch_add(1, Ordering::SeqCst);
                let response = response.unwrap();
                assert!([200, 201, 207, 503].contains(&response.status), "{response:?}");
            });
        }
        let alive = scope.spawn(|| {
            assert_undisturbed("/livez", &answered, requests, |_| {
                let response = gate.client().send("GET", "/livez", &[], b"").unwrap();
                assert_eq!(response.status, 200);
            });
        });
        assert_undisturbed("another principal", &answered, requests, |n| {
            let body = json!({"n": n}).to_string();
            assert_eq!(post(&gate, "b", "/v1/events/plain", &body).status, 201);
        });
        alive.join().unwrap();
    });
    gate.stop();
}

#[test]
fn a_deep_recursion_of_references_ends_in_a_violation() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &with_schema(folder.path(), &doubling()));
    problem(&post(&gate, "a", "/v1/events/strict", &deep(1)), 400, "invalid_envelope");
    let good = format!("{}\"end\"{}", r#"{"x":0,"a":"#.repeat(60), "}".repeat(60));
    assert_eq!(post(&gate, "a", "/v1/events/strict", &good).status, 201);
    gate.stop();
}

#[test]
fn a_gate_that_validates_costly_events_still_shuts_down() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &with_schema(folder.path(), &doubling_for_any_text()));
    thread::scope(|scope| {
        let handles: Vec<_> = (0..8)
            .map(|n| {
                let mut client = gate.client().with("Authorization", "Bearer a-key-of-the-tests");
                scope.spawn(move || {
                    client.send("POST", "/v1/events/strict", &[], costly(n).as_bytes())
                })
            })
            .collect();
        // After the first refusal others are still being validated.
        let reply = post(&gate, "a", "/v1/events/strict", &costly(99));
        assert!(reply.status >= 400);
        gate.stop();
        for handle in handles {
            if let Ok(response) = handle.join().unwrap() {
                assert!(response.status >= 400, "{response:?}");
            }
        }
    });
}

#[test]
fn a_large_valid_event_is_accepted_despite_a_costly_schema() {
    let folder = tempfile::tempdir().unwrap();
    let schema =
        json!({"items": {"anyOf": [{"type": "null"}, {"type": "string"}, {"minimum": 0}]}});
    let gate = configured(folder.path(), &with_schema(folder.path(), &schema));
    let large = format!("[{}7]", "1,".repeat(40_000));
    assert_eq!(post(&gate, "a", "/v1/events/strict", &large).status, 201);
    let lines: String = (0..200).map(|n| format!("[{n},\"{}\"]\n", "x".repeat(500))).collect();
    let headers =
        [("Authorization", "Bearer a-key-of-the-tests"), ("Content-Type", "application/x-ndjson")];
    let response =
        gate.client().send("POST", "/v1/events/strict", &headers, lines.as_bytes()).unwrap();
    assert!(response.status < 300, "{response:?}");
    gate.stop();
}
