//! `schema = "strict"` against an independent JSON Schema validator, over thousands of mutated requests.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use admit_contracts::Contract as _;
use admit_contracts::pixel_control::{PixelControl, SchemaMode, Settings};
use admit_core::{Door, Entry, Millis, Principal, Submission};
use admit_testkit::rng::Rng;
use serde_json::{Value, json};

use crate::support::{machine, python};

/// Valid requests with every optional field, of both versions and all categories.
const VALID: &str = include_str!("fixtures/pixel-control/envelopes.json");

const MUTANTS: usize = 3_000;

/// Environment variable with the folder of the published schemas, which are not in this repository.
const PUBLISHED: &str = "ADMIT_TEST_PIXEL_CONTROL_SCHEMAS";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Whether the validator accepts each request; `None` without Python.
fn verdicts(mode: &str, folder: &Path, requests: &[Value]) -> Option<Vec<bool>> {
    let mut command = Command::new(python::program("python")?);
    command.arg(repository("tests/python/pixel_control_schemas.py")).arg(mode).arg(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && writer.join().unwrap().is_ok(), "the validator failed");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line == "1").collect())
}

fn is_taken(contract: &PixelControl, request: &Value) -> bool {
    let submission = Submission {
        principal: Principal::new("p"),
        received_at: Millis(1_771_524_842_123),
        body: request.to_string().into(),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    matches!(contract.vet(&Door::new("pixel-control"), submission), Entry::Event(_))
}

/// JSON pointers to every value in a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate() {
                places(element, &format!("{at}/{n}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn any_place(value: &Value, rng: &mut Rng) -> String {
    let mut found = Vec::new();
    places(value, "", &mut found);
    found.swap_remove(rng.below(found.len() as u64) as usize)
}

fn any_value(rng: &mut Rng) -> Value {
    let mut pool = json!([
        null, true, false, 0, 1, -1, 2, 1.0, 1.5, -0.0, -2.5, 1e300, "", "x", "unknown", "player", "map",
        "match", "pause.start", "warmup", "script", "callback", "2026-02-19.1", "2026-02-20.1", "a.b",
        "lifecycle", [], [1], ["a"], [{}], [[]], {}, {"a": 1}, {"a": true}, {"a": "b"}
    ]);
    let values = pool.as_array_mut().unwrap();
    values.swap_remove(rng.below(values.len() as u64) as usize)
}

/// Mutates a request in one place: another value, a missing member, an extra member, or a part of another
/// request.
fn mutate(request: &mut Value, others: &[Value], rng: &mut Rng) {
    let place = any_place(request, rng);
    match rng.below(5) {
        0 | 1 => *request.pointer_mut(&place).unwrap() = any_value(rng),
        2 => {
            let Some((parent, name)) = place.rsplit_once('/') else { return };
            match request.pointer_mut(parent).unwrap() {
                Value::Object(members) => {
                    members.remove(name);
                }
                Value::Array(elements) => {
                    elements.remove(name.parse().unwrap());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        3 => match request.pointer_mut(&place).unwrap() {
            Value::Object(members) => {
                let names = ["new", "payload", "script_callback", "admin_action", "event_kind"];
                let name = names[rng.below(names.len() as u64) as usize];
                members.insert(name.to_owned(), any_value(rng));
            }
            Value::Array(elements) => elements.push(any_value(rng)),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                *other = json!([other.take()]);
            }
        },
        _ => {
            let other = &others[rng.below(others.len() as u64) as usize];
            // The same place if it exists, otherwise any.
            let part = other.pointer(&place).cloned();
            let part =
                part.unwrap_or_else(|| other.pointer(&any_place(other, rng)).unwrap().clone());
            *request.pointer_mut(&place).unwrap() = part;
        }
    }
}

/// The valid requests and their mutants.
fn requests(mut rng: Rng) -> Vec<Value> {
    let valid: Vec<Value> = serde_json::from_str(VALID).unwrap();
    let mutants = (0..MUTANTS).map(|n| {
        let mut mutant = valid[n % valid.len()].clone();
        for _ in 0..=rng.below(2) {
            mutate(&mut mutant, &valid, &mut rng);
        }
        mutant
    });
    let mutants: Vec<Value> = mutants.collect();
    [valid, mutants].concat()
}

fn compare(mode: &str, folder: &Path) {
    let requests = requests(machine::rng());
    let Some(expected) = verdicts(mode, folder, &requests) else { return };
    assert_eq!(expected.len(), requests.len());
    let taken = expected.iter().filter(|is_taken| **is_taken).count();
    println!("{} of {} requests are taken", taken, requests.len());
    assert!(taken > MUTANTS / 20 && taken < MUTANTS * 19 / 20, "{taken}: the mutants test nothing");
    let strict = Settings { schema: SchemaMode::Strict, ..Settings::default() };
    let contract = PixelControl::new(strict);
    let different: Vec<String> = requests
        .iter()
        .zip(expected)
        .filter(|(request, expected)| is_taken(&contract, request) != *expected)
        .map(|(request, expected)| format!("taken by the schemas: {expected}\n{request}"))
        .collect();
    let first = different.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{} are different:\n{first}", different.len());
}

#[test]
fn strict_mode_agrees_with_an_independent_validator_on_our_schemas() {
    compare("own", &repository("crates/contracts/schemas/pixel-control"));
}

#[test]
fn strict_mode_agrees_with_the_published_schemas() {
    match std::env::var_os(PUBLISHED) {
        Some(folder) => compare("published", Path::new(&folder)),
        None => machine::not_applicable(&format!("{PUBLISHED} names no folder of them")),
    }
}
