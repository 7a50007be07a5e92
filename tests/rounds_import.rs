//! Imports of folders of artifacts: repeated, watched and killed, without duplicates.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::gate::{self, Gate};
use crate::support::intents::admit;
use crate::support::ledger::assert_intact;
use crate::support::rounds::{
    Round, file, number, post_source_ok, rounds, row_counts, write_artifact,
};
use crate::support::{TIMEOUT, machine, wait_for};

/// Writes the artifacts of `count` rounds into a folder; returns the number of files.
fn artifacts(folder: &Path, count: u32) -> u64 {
    for n in 0..count {
        let round = Round::nth(n);
        write_artifact(folder, round.stats());
        write_artifact(folder, round.gametime());
        write_artifact(folder, round.proximity(2));
    }
    u64::from(count) * 3
}

/// Runs an import; returns whether all files were accepted, and its output.
fn import(gate: &Gate, folder: &Path, more: &[&str]) -> (bool, Value) {
    let listen = gate.address().to_string();
    let (path, data) = (folder.to_str().unwrap(), gate.data().to_str().unwrap());
    let mut words = vec!["import", "rounds", path, "--listen", &listen, "--data", data, "--json"];
    words.extend(["--settle-ms", "0"]);
    words.extend(more);
    let (went_well, printed) = admit(&words);
    let end = printed.rfind('}').map_or(0, |end| end + 1);
    (went_well, serde_json::from_str(&printed[..end]).unwrap_or_else(|e| panic!("{e}: {printed}")))
}

/// An import in the background, killed on drop.
struct ImportProcess(Child);

impl ImportProcess {
    fn start(gate: &Gate, folder: &Path, more: &[&str]) -> Self {
        let listen = gate.address().to_string();
        let words = ["import", "rounds", folder.to_str().unwrap(), "--listen", &listen, "--data"];
        let data = [gate.data().to_str().unwrap(), "--json"];
        let mut command = gate::admit([&words[..], &data, more].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for ImportProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

const EVENTS: &str = "SELECT count(*) FROM record_event";

#[test]
fn importing_a_folder_twice_adds_nothing() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let files = artifacts(artifacts_in.path(), 100);
    std::fs::write(artifacts_in.path().join("notes.md"), "not ours").unwrap();
    let (went_well, dry) = import(&gate, artifacts_in.path(), &["--dry-run"]);
    assert!(went_well);
    assert_eq!(dry["dispositions"], json!({ "new": files }), "{dry}");
    assert_eq!(number(folder.path(), EVENTS), 0, "a dry run sends nothing");

    let (went_well, first) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well, "{first}");
    assert_eq!(first["dispositions"], json!({ "new": files }), "{first}");
    assert_eq!(first["skipped"].as_array().unwrap().len(), 1);
    // Some replies preceded the file that links them; in the end all are linked.
    let now = json!({ "events": files, "not_linked": 0, "parse_failed": 0 });
    assert_eq!(first["gate_now"], now, "{first}");
    let before = row_counts(folder.path());
    assert_eq!(number(folder.path(), "SELECT count(*) FROM rounds"), 100);
    assert_eq!(number(folder.path(), "SELECT count(*) FROM combat_engagement"), 200);
    let open = "SELECT count(*) FROM record_event WHERE link_status <> 'linked_round_id'";
    assert_eq!(number(folder.path(), open), 0);

    let (went_well, second) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well, "{second}");
    assert_eq!(second["dispositions"], json!({ "replay": files }), "{second}");
    assert_eq!(row_counts(folder.path()), before);
    let (_, dry) = import(&gate, artifacts_in.path(), &["--dry-run"]);
    assert_eq!(dry["dispositions"], json!({ "replay": files }), "{dry}");
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn an_import_classifies_damaged_files_and_continues_after_one_that_is_too_large() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let path = artifacts_in.path();
    artifacts(path, 2);
    write_artifact(path, ("2026-13-40-000000-x-round-1.txt".to_owned(), "x".to_owned()));
    write_artifact(path, ("gametime-broken.json".to_owned(), "{".to_owned()));
    std::fs::write(path.join("2026-02-11-220205-latin-round-1.txt"), b"\xe9\\a\n\xff").unwrap();
    write_artifact(
        path,
        ("2026-02-11-220205-supply-round-1-endstats.txt".to_owned(), "x".to_owned()),
    );
    let large = "2026-02-11-220205-large-round-1.txt";
    write_artifact(path, (large.to_owned(), "x".repeat(2 * 1024 * 1024)));
    let (went_well, printed) = import(&gate, path, &[]);
    assert!(!went_well, "one was not taken: {printed}");
    assert_eq!(printed["states"]["parse_failed"], 3, "{printed}");
    assert_eq!(printed["dispositions"]["new"], 9);
    let failed = printed["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{printed}");
    assert!(failed[0]["path"].as_str().unwrap().ends_with(large));
    assert!(failed[0]["message"].as_str().unwrap().contains("body_too_large"), "{printed}");
    gate.stop();
}

#[test]
fn a_killed_import_is_resumed_by_running_it_again() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let files = artifacts(artifacts_in.path(), 150);
    let mut importing = ImportProcess::start(&gate, artifacts_in.path(), &["--settle-ms", "0"]);
    wait_for("some files are in", TIMEOUT, || (number(folder.path(), EVENTS) > 20).then_some(()));
    importing.0.kill().unwrap();
    importing.0.wait().unwrap();
    let (went_well, printed) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well, "{printed}");
    assert_eq!(printed["taken"], files);
    assert_eq!(number(folder.path(), EVENTS), i64::try_from(files).unwrap());
    assert_eq!(number(folder.path(), "SELECT count(*) FROM rounds"), 150);
    gate.stop();
}

#[test]
fn a_gate_killed_during_an_import_loses_no_accepted_file() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let files = artifacts(artifacts_in.path(), 150);
    let importing = ImportProcess::start(&gate, artifacts_in.path(), &["--settle-ms", "0"]);
    wait_for("some files are in", TIMEOUT, || (number(folder.path(), EVENTS) > 50).then_some(()));
    gate.kill();
    drop(importing);
    let gate = Gate::on(folder.path());
    let survived = number(folder.path(), EVENTS);
    assert!(survived > 50);
    let (went_well, printed) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well, "{printed}");
    let replays = printed["dispositions"]["replay"].as_i64().unwrap_or(0);
    assert_eq!(replays, survived, "{printed}");
    assert_eq!(number(folder.path(), EVENTS), i64::try_from(files).unwrap());
    let rows = number(folder.path(), "SELECT count(*) FROM lua_spawn_stats");
    assert_eq!(rows, 300, "two players a round, once");
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn a_watched_folder_is_imported_as_it_fills_and_stops_on_a_signal() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    write_artifact(artifacts_in.path(), Round::nth(0).stats());
    let watching = ["--watch", "--settle-ms", "300"];
    let mut importing = ImportProcess::start(&gate, artifacts_in.path(), &watching);
    let has = |count: i64| {
        wait_for("the file is in", TIMEOUT, || {
            (number(folder.path(), EVENTS) >= count).then_some(())
        });
    };
    has(1);
    write_artifact(artifacts_in.path(), Round::nth(0).gametime());
    write_artifact(artifacts_in.path(), Round::nth(1).stats());
    has(3);
    machine::signal(importing.0.id(), "INT");
    let status = wait_for("it ends", TIMEOUT, || importing.0.try_wait().unwrap());
    assert!(status.success(), "{status:?}");
    let mut text = String::new();
    std::io::Read::read_to_string(importing.0.stdout.as_mut().unwrap(), &mut text).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&printed["taken"], &printed["dispositions"]), (&json!(3), &json!({ "new": 3 })));
    gate.stop();
}

#[test]
fn a_file_and_its_message_converge_in_any_order() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let round = Round::reference();
    write_artifact(artifacts_in.path(), round.stats());
    post_source_ok(&mut gate.client(), "filename_trigger", &file(round.stats()));
    post_source_ok(&mut gate.client(), "stats_ready", &round.ready());
    let (went_well, printed) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well);
    assert_eq!(printed["dispositions"], json!({ "replay": 1 }), "the poll finds the known event");
    assert_eq!(rounds(&mut gate.client()).len(), 1);
    let (went_well, printed) = import(&gate, artifacts_in.path(), &["--update-metadata"]);
    assert!(went_well, "{printed}");
    assert_eq!(rounds(&mut gate.client()).len(), 1);
    gate.stop();
}

#[test]
fn an_import_lists_known_files_with_other_content() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let round = Round::reference();
    post_source_ok(
        &mut gate.client(),
        "filename_trigger",
        &file(round.stats_with(1, &[("A", "a", 1)])),
    );
    post_source_ok(&mut gate.client(), "filename_trigger", &file(Round::nth(0).stats()));
    let other = write_artifact(artifacts_in.path(), round.stats());
    write_artifact(artifacts_in.path(), Round::nth(0).stats());
    for more in [&["--dry-run"][..], &[], &[]] {
        let (went_well, printed) = import(&gate, artifacts_in.path(), more);
        assert!(went_well);
        assert_eq!(printed["content_differs"], json!([other]), "{printed}");
    }
    gate.stop();
}

#[test]
fn a_symlink_out_of_the_folder_is_skipped_and_listed() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, artifacts_in.path().join(name)).unwrap();
    };
    let inside = write_artifact(artifacts_in.path(), Round::nth(0).stats());
    let renamed = Round::nth(0).stats().0.replace("map_0", "alias");
    link(&inside, &renamed);
    let (secret, target) =
        (write_artifact(elsewhere.path(), Round::nth(1).stats()), Round::nth(1).stats().0);
    link(&secret, &target);
    link(elsewhere.path(), "a_folder");
    link(&artifacts_in.path().join("circle-round-1.txt"), "circle-round-1.txt");
    let outside = json!([artifacts_in.path().join(&target), artifacts_in.path().join("a_folder")]);
    let sorted = |value: &Value| {
        let mut paths: Vec<String> = serde_json::from_value(value.clone()).unwrap();
        paths.sort();
        paths
    };
    for (more, events) in [(&["--dry-run"][..], 0), (&[], 2)] {
        let (went_well, printed) = import(&gate, artifacts_in.path(), more);
        assert!(went_well, "{printed}");
        assert_eq!(printed["taken"], 2, "the file and the link within the folder: {printed}");
        assert_eq!(sorted(&printed["outside"]), sorted(&outside), "{printed}");
        assert_eq!(number(folder.path(), EVENTS), events);
    }
    let mut importing =
        ImportProcess::start(&gate, artifacts_in.path(), &["--watch", "--settle-ms", "0"]);
    let late = write_artifact(elsewhere.path(), Round::nth(2).stats());
    link(&late, &Round::nth(2).stats().0);
    write_artifact(artifacts_in.path(), Round::nth(3).stats());
    wait_for("the file is in", TIMEOUT, || (number(folder.path(), EVENTS) >= 3).then_some(()));
    machine::signal(importing.0.id(), "INT");
    assert!(wait_for("it ends", TIMEOUT, || importing.0.try_wait().unwrap()).success());
    let mut text = String::new();
    std::io::Read::read_to_string(importing.0.stdout.as_mut().unwrap(), &mut text).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["outside"].as_array().unwrap().len(), 3, "{printed}");
    assert_eq!(number(folder.path(), EVENTS), 3, "nothing from elsewhere");
    // A symlink given as an argument is followed.
    let (went_well, printed) = import(&gate, &artifacts_in.path().join(&target), &[]);
    assert!(went_well && printed["taken"] == 1, "{printed}");
    gate.stop();
}

#[test]
fn an_import_reports_what_prevents_it() {
    let (folder, artifacts_in) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let listen = gate.address().to_string();
    let nowhere = artifacts_in.path().join("nowhere");
    let (went_well, printed) =
        admit(&["import", "rounds", nowhere.to_str().unwrap(), "--listen", &listen]);
    assert!(!went_well && printed.contains("cannot read"), "{printed}");
    let (went_well, empty) = import(&gate, artifacts_in.path(), &[]);
    assert!(went_well);
    assert_eq!(empty["taken"], 0);
    gate.stop();
}
