//! Output of `admit bench`: names and plausibility of the measurements. The values do not matter, as
//! this is a debug build running beside other tests.

use serde_json::Value;

use crate::support::gate;

/// Runs `admit bench` with one second per measurement; returns its JSON.
fn bench(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let always = ["bench", "--json", "--seconds", "1", "--dir", dir];
    let output = gate::admit(always.iter().chain(arguments)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the bench must remove its files");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that there are exactly these measurements, each with a rate and ordered latencies.
fn assert_lines(measured: &Value, names: &[&str]) {
    let lines = measured.as_object().unwrap();
    assert_eq!(lines.keys().map(String::as_str).collect::<Vec<_>>(), names, "{measured}");
    for (name, line) in lines {
        assert!(line["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{name}: {line}");
        let micros = ["p50_us", "p99_us", "max_us"].map(|part| line[part].as_u64().unwrap());
        assert!(micros[0] > 0 && micros.is_sorted(), "{name}: {line}");
    }
}

/// Asserts that a measurement of one second has two turns and reports the CPU time stolen by the host.
fn assert_host_load(line: &Value) {
    assert_eq!(line["turns"], 2, "{line}");
    // Only Linux reports it.
    let is_reported = line["stolen"].as_f64().is_some_and(|cores| cores >= 0.0);
    assert_eq!(is_reported, cfg!(target_os = "linux"), "{line}");
    match line["quiet"].as_object() {
        // On a busy host there may be no quiet turn.
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
fn the_bench_measures_the_doors_and_the_ledger_separately() {
    let measured = bench(&["--only", "ceiling,fresh,duplicate,mixed,batch,ledger"]);
    let names = ["batch", "ceiling", "duplicate", "fresh", "ledger", "mixed"];
    assert_lines(&measured, &names);
    for name in names {
        assert_host_load(&measured[name]);
    }
}

#[test]
fn half_load_is_measured_with_and_without_a_ledger() {
    let measured = bench(&["--only", "ceiling,fresh,half_load"]);
    assert_lines(&measured, &["ceiling", "fresh", "half_append", "half_ceiling", "half_load"]);
    let rate = |line: &str| measured[line]["per_s"].as_f64().unwrap();
    for line in ["half_append", "half_ceiling", "half_load"] {
        assert!(rate(line) < rate("fresh") * 0.7, "{line} is not paced: {measured}");
    }
}

#[test]
fn the_bench_measures_many_known_keys_and_few() {
    let measured = bench(&["--known", "120000"]);
    let names = ["fresh", "fresh_100k_known", "ledger", "ledger_100k_known", "restart"];
    assert_lines(&measured, &names);
    assert_lines(&bench(&["--known", "100000", "--only", "ledger"]), &names[2..]);
    let compared = bench(&["--known", "100000", "--only", "ledger", "--unique-index"]);
    assert_lines(&compared, &["ledger", "ledger_100k_known", "ledger_unique_index", "restart"]);
}

#[test]
fn an_unknown_measurement_is_refused_with_the_list_of_known_ones() {
    for (arguments, expected) in [
        (&["--only", "fast"][..], "no line \"fast\"; there are: fresh, half_load, duplicate"),
        (
            &["--only", "mixed", "--known", "100000"],
            "no line \"mixed\" with --known; there are: fresh, ledger",
        ),
    ] {
        let output = gate::admit(["bench"].iter().chain(arguments)).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(expected), "{stderr}");
    }
}
