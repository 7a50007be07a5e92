//! The bench prints what it measured, under the names that programs go by. How fast anything is here is
//! nobody's business: this is a debug build beside other tests.

use serde_json::Value;

use crate::support::gate;

/// Runs `admit bench` for a second a line; its lines.
fn bench(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let always = ["bench", "--json", "--seconds", "1", "--dir", dir];
    let ended = gate::admit(always.iter().chain(arguments)).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "it takes everything along that it has made");
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// The lines have these names, a rate each, and latencies in order.
fn has_lines(measured: &Value, names: &[&str]) {
    let lines = measured.as_object().unwrap();
    assert_eq!(lines.keys().map(String::as_str).collect::<Vec<_>>(), names, "{measured}");
    for (name, line) in lines {
        assert!(line["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{name}: {line}");
        let micros = ["p50_us", "p99_us", "max_us"].map(|part| line[part].as_u64().unwrap());
        assert!(micros[0] > 0 && micros.is_sorted(), "{name}: {line}");
    }
}

/// A second has two turns, and what the host took of them is told in cores.
fn tells_of_the_host(line: &Value) {
    assert_eq!(line["turns"], 2, "{line}");
    // Other systems do not count it.
    let is_told = line["stolen"].as_f64().is_some_and(|cores| cores >= 0.0);
    assert_eq!(is_told, cfg!(target_os = "linux"), "{line}");
    match line["quiet"].as_object() {
        // A busy host leaves no turn alone.
        None => assert!(line["quiet"].is_null(), "{line}"),
        Some(quiet) => {
            assert!(matches!(quiet["turns"].as_u64(), Some(1 | 2)), "{line}");
            assert!(quiet["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{line}");
            let micros = [&quiet["p50_us"], &quiet["p99_us"], &quiet["max_us"], &line["max_us"]];
            assert!(micros.map(|micros| micros.as_u64().unwrap()).is_sorted(), "{line}");
        }
    }
}

#[test]
fn the_bench_measures_the_doors_and_the_ledger_alone() {
    let measured = bench(&["--only", "ceiling,fresh,duplicate,mixed,batch,ledger"]);
    let names = ["batch", "ceiling", "duplicate", "fresh", "ledger", "mixed"];
    has_lines(&measured, &names);
    for name in names {
        tells_of_the_host(&measured[name]);
    }
}

#[test]
fn half_of_the_load_is_measured_beside_doors_without_a_ledger() {
    let measured = bench(&["--only", "ceiling,fresh,half_load"]);
    has_lines(&measured, &["ceiling", "fresh", "half_append", "half_ceiling", "half_load"]);
    let rate = |line: &str| measured[line]["per_s"].as_f64().unwrap();
    for line in ["half_append", "half_ceiling", "half_load"] {
        assert!(rate(line) < rate("fresh") * 0.7, "{line} is not paced: {measured}");
    }
}

#[test]
fn the_bench_measures_many_known_keys_beside_few() {
    let measured = bench(&["--known", "120000"]);
    let names = ["fresh", "fresh_100k_known", "ledger", "ledger_100k_known", "restart"];
    has_lines(&measured, &names);
    has_lines(&bench(&["--known", "100000", "--only", "ledger"]), &names[2..]);
}

#[test]
fn a_line_that_is_not_there_is_refused_with_those_that_are() {
    for (arguments, said) in [
        (&["--only", "fast"][..], "no line \"fast\"; there are: fresh, half_load, duplicate"),
        (
            &["--only", "mixed", "--known", "100000"],
            "no line \"mixed\" with --known; there are: fresh, ledger",
        ),
    ] {
        let ended = gate::admit(["bench"].iter().chain(arguments)).output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(told.contains(said), "{told}");
    }
}
