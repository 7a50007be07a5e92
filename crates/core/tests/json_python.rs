//! Compares JSON reading and writing with CPython, text by text.
//!
//! One `python3` process checks all texts of a test. They come from a seeded generator; set
//! `ADMIT_JSON_SEED` for another seed and `ADMIT_JSON_DOCUMENTS` for more texts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use admit_core::hash::hex;
use admit_core::json::{Form, Limits, canonical, parse};

#[path = "fixtures/json_texts.rs"]
mod json_texts;

use json_texts::Texts;

const ORACLE: &str = include_str!("fixtures/json_oracle.py");
const SEED: u64 = 0x0ad1_717e_5eed;
const DOCUMENTS: u64 = 8_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
}

fn seed() -> u64 {
    setting("ADMIT_JSON_SEED", SEED)
}

fn documents() -> u64 {
    setting("ADMIT_JSON_DOCUMENTS", DOCUMENTS)
}

/// CPython's result per text, in order.
fn cpython(texts: &[Vec<u8>]) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-I", "-c", ORACLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect(
            "this test needs `python3` on the PATH: CPython is the authority it checks against",
        );
    let lines: String = texts.iter().map(|text| hex(text) + "\n").collect();
    // The oracle reads all input before it writes, so neither side blocks the other.
    let mut stdin = python.stdin.take().expect("stdin is piped");
    stdin.write_all(lines.as_bytes()).expect("python3 reads the texts");
    drop(stdin);
    let output = python.wait_with_output().expect("python3 answers");
    assert!(output.status.success(), "the oracle failed with {}", output.status);
    let answers = String::from_utf8(output.stdout).expect("the oracle writes ascii");
    let answers: Vec<String> = answers.lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), texts.len(), "one answer for each text");
    answers
}

/// Our result in the oracle's format.
fn ours(text: &[u8]) -> String {
    match parse(text, &Limits::default()) {
        Ok(value) => {
            let form = |form| hex(&canonical(&value, form).expect("what we read we can write"));
            format!("ok {} {}", form(Form::Utf8), form(Form::Ascii))
        }
        Err(error) => format!("beyond {}", error.kind()),
    }
}

/// Texts rejected by CPython must be rejected. Texts it accepts must give the same value, or be
/// rejected for one of the reasons the oracle knows.
#[track_caller]
fn agrees(text: &[u8], answer: &str) {
    let ours = ours(text);
    let text = String::from_utf8_lossy(text);
    if answer == "no" {
        assert!(ours.starts_with("beyond "), "cpython rejects {text:?}, our result is {ours}");
    } else if answer.starts_with("beyond ") {
        // A text may exceed several limits; which one is reported is unspecified.
        assert!(ours.starts_with("beyond "), "we must refuse {text:?} ({answer})");
    } else {
        assert_eq!(ours, answer, "{text:?}");
    }
}

fn count(answers: &[String], verdict: &str) -> usize {
    answers.iter().filter(|answer| answer.starts_with(verdict)).count()
}

#[test]
fn random_documents_are_written_like_cpython() {
    println!("ADMIT_JSON_SEED={}", seed());
    let mut texts = Texts::new(seed());
    let documents: Vec<Vec<u8>> = (0..documents()).map(|_| texts.document()).collect();
    let answers = cpython(&documents);
    for (document, answer) in documents.iter().zip(&answers) {
        assert!(answer.starts_with("ok "), "{:?} is a document", String::from_utf8_lossy(document));
        agrees(document, answer);
    }
    assert!(count(&answers, "ok ") >= 5_000 || documents.len() < 5_000);
}

#[test]
fn damaged_documents_are_refused_when_cpython_refuses_them() {
    println!("ADMIT_JSON_SEED={}", seed());
    let mut texts = Texts::new(seed());
    let damaged: Vec<Vec<u8>> = (0..documents()).map(|_| texts.damaged()).collect();
    let answers = cpython(&damaged);
    for (text, answer) in damaged.iter().zip(&answers) {
        agrees(text, answer);
    }
    let tally = ["ok ", "no", "beyond "].map(|verdict| count(&answers, verdict));
    println!("read, refused, beyond: {tally:?}");
    assert!(tally.iter().all(|count| *count * 200 > damaged.len()), "all kinds met: {tally:?}");
}

#[test]
fn inputs_rejected_beyond_cpython_are_a_closed_list() {
    let deep = "[".repeat(129) + &"]".repeat(129);
    let table: &[(&str, &str)] = &[
        ("NaN", "number_not_finite"),
        ("[Infinity]", "number_not_finite"),
        (r#"{"a":-Infinity}"#, "number_not_finite"),
        ("1e400", "number_overflow"),
        ("-1.7976931348623159e308", "number_overflow"),
        (r#""\ud800""#, "lone_surrogate"),
        (r#"{"\udfff":1}"#, "lone_surrogate"),
        (r#"{"a":"\udbff\ud800","a":1}"#, "lone_surrogate"),
        (&deep, "too_deep"),
    ];
    let texts: Vec<Vec<u8>> = table.iter().map(|(text, _)| text.as_bytes().to_vec()).collect();
    for ((text, kind), answer) in table.iter().zip(cpython(&texts)) {
        assert_eq!(answer, format!("beyond {kind}"), "cpython on {text}");
        assert_eq!(ours(text.as_bytes()), answer, "we on {text}");
    }
}

#[test]
fn texts_at_the_edge_of_the_grammar_are_treated_as_by_cpython() {
    let mut texts: Vec<Vec<u8>> = json_texts::EDGES.iter().map(|text| text.to_vec()).collect();
    for digits in [4299, 4300, 4301] {
        texts.extend(["", "-"].map(|sign| (sign.to_owned() + &"9".repeat(digits)).into_bytes()));
        texts.push(("9".repeat(digits) + ".0e-4000").into_bytes());
    }
    for zeros in [1_000, 70_000, 700_000] {
        let pad = "0".repeat(zeros);
        texts.push(format!("12{pad}.0e-{zeros}").into_bytes());
        texts.push(format!("-0.{pad}12e{zeros}").into_bytes());
        texts.push(format!("9007199254740993.{pad}1").into_bytes());
        texts.push(format!("0.{pad}1e310").into_bytes());
    }
    for depth in [127, 128] {
        texts.push(("[".repeat(depth) + &"]".repeat(depth)).into_bytes());
    }
    texts.extend((0..=255).map(|byte| vec![b'"', byte, b'"']));
    texts.extend((0..=255).map(|byte| vec![b'"', b'\\', byte, b'"']));
    texts.extend((0..=255).map(|byte| vec![byte, b'1']));
    texts.extend((0..=255).map(|byte| vec![b'1', byte]));
    texts.extend((0..=255).map(|byte| vec![b'1', byte, b'1']));
    for (text, answer) in texts.iter().zip(cpython(&texts)) {
        agrees(text, &answer);
    }
}

#[test]
fn floats_of_every_magnitude_are_written_as_cpython_writes_them() {
    println!("ADMIT_JSON_SEED={}", seed());
    let mut texts = Texts::new(seed());
    let powers = (0..2047u64).flat_map(|exponent| {
        let power = exponent << 52;
        [power.wrapping_sub(1), power, power + 1, power | 1 << 51]
    });
    let random: Vec<u64> = (0..documents()).map(|_| texts.next()).collect();
    // Where doubles may lie exactly between two spellings.
    let ties = random.iter().map(|bits| {
        let fraction = bits & ((1 << 52) - 1) & !((1 << (bits >> 52 & 31)) - 1);
        fraction | (1023 - 30 + bits % 100) << 52
    });
    let mut numbers: Vec<f64> =
        powers.chain(ties).chain(random.iter().copied()).map(f64::from_bits).collect();
    numbers.extend((-330..310).map(|exponent| format!("1e{exponent}").parse::<f64>().unwrap()));
    numbers.retain(|number| number.is_finite());
    // Seventeen digits name each double, so CPython surely reads the one that is meant.
    let spelt: Vec<Vec<u8>> =
        numbers.iter().map(|number| format!("{number:.16e}").into_bytes()).collect();
    for (text, answer) in spelt.iter().zip(cpython(&spelt)) {
        assert_eq!(ours(text), answer, "{}", String::from_utf8_lossy(text));
    }
}
