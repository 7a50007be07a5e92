//! `admit verify` reports what it did not check, and `admit repair` restores what the ledger can derive.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::events::match_begin;
use crate::support::gate::{self, Gate};
use crate::support::ingest::{RUN, artifact, envelope, launch_fast, push};
use crate::support::machine::text;
use crate::support::rounds::{Round, SOURCES, post_source_ok};
use crate::support::skyra::text as skyra;
use crate::support::sql;

struct VerifyOutput {
    agrees: bool,
    printed: String,
}

fn run(words: &[&str], data: &Path) -> VerifyOutput {
    let output = gate::admit([words, &["--data", text(data)]].concat()).output().unwrap();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    VerifyOutput { agrees: output.status.success(), printed }
}

fn verify(data: &Path) -> VerifyOutput {
    run(&["verify"], data)
}

/// Damages the ledger, verifies it, and repairs it.
fn assert_found(data: &Path, spoil: &str, mend: &str, expected: &[&str]) {
    sql::execute(data, spoil);
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(!agrees, "{spoil}: {printed}");
    for words in expected {
        assert!(printed.contains(words), "{spoil}: {words} is not in\n{printed}");
    }
    sql::execute(data, mend);
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{mend}: {printed}");
}

fn post(gate: &Gate, path: &str, body: &Value) -> Value {
    let answer = gate.client().send("POST", path, &[], body.to_string().as_bytes()).unwrap();
    assert!(answer.status < 300, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

#[test]
fn verify_finds_foreign_and_altered_rows_in_the_inbox() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    for n in 0..4 {
        post(&gate, "/v1/ingress", &serde_json::from_str(&skyra(n)).unwrap());
    }
    let request = json!({ "consumer": "c", "max": 3, "lease_seconds": 60 });
    let claimed = post(&gate, "/v1/inbox/claim", &request);
    for (n, status) in [(0, "done"), (1, "failed")] {
        let event = &claimed["events"][n];
        let path = format!("/v1/inbox/{}", event["event_id"].as_str().unwrap());
        post(&gate, &path, &json!({ "status": status, "lease": event["lease"] }));
    }
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees && printed.contains("4 inbox rows checked"), "{printed}");
    assert!(printed.contains("not checked: last_updated_at of 1 finished inbox rows"), "{printed}");
    assert!(
        printed.ends_with("everything that was checked agrees\n"),
        "it did not look there: {printed}"
    );

    let foreign = match sql::is_postgres() {
        true => "INSERT INTO event_inbox VALUES ('f', 'received', 'x', 'x', '{}', 90000)",
        false => "INSERT INTO event_inbox VALUES ('f', 'received', 'x', 'x', '{}')",
    };
    let gone = "DELETE FROM event_inbox WHERE event_id = 'f'";
    assert_found(data, foreign, gone, &["inbox", "no admission made", "1 disagreement found"]);
    // The entry that was never claimed, the failed one, and the claimed one.
    for (status, column, value, expected) in [
        ("received", "status", "lost", "none of the inbox"),
        ("received", "status", "done", "by its claims it is \"received\""),
        ("claimed", "status", "received", "by its claims it is \"claimed\""),
        ("failed", "received_at", "2020-01-01T00:00:00.000Z", "its admission came at"),
        ("failed", "last_updated_at", "2020-01-01T00:00:00.000Z", "it was finished at"),
        ("received", "last_updated_at", "2020-01-01T00:00:00.000Z", "it has not changed since"),
        ("claimed", "last_updated_at", "2999-01-01T00:00:00.000Z", "after the lease"),
        ("done", "last_updated_at", "yesterday", "no time as the gate writes it"),
    ] {
        let row: String = sql::query_one(
            data,
            &format!("SELECT event_id FROM event_inbox WHERE status = '{status}'"),
        );
        let is = |column: &str| {
            let query = format!("SELECT {column} FROM event_inbox WHERE event_id = '{row}'");
            sql::query_one::<String>(data, &query)
        };
        let set = |value: &str| {
            format!("UPDATE event_inbox SET {column} = '{value}' WHERE event_id = '{row}'")
        };
        let before = is(column);
        assert_found(data, &set(value), &set(&before), &[expected, "1 disagreement found"]);
    }
}

#[test]
fn verify_finds_inconsistent_effects_and_runs_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_fast(data).start();
    let mut client = gate.client();
    for n in [1, 2, 3, 1] {
        push(&mut client, &envelope(n));
    }
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees && printed.ends_with("everything agrees\n"), "{printed}");
    let first = "seq = (SELECT min(seq) FROM effect)";
    for (spoil, mend, expected) in [
        (
            format!("UPDATE effect SET attempt = 7 WHERE {first}"),
            format!("UPDATE effect SET attempt = 1 WHERE {first}"),
            "its history ends with done in attempt 1",
        ),
        (
            format!("UPDATE effect_history SET n = 9 WHERE n = 1 AND {first}"),
            format!("UPDATE effect_history SET n = 1 WHERE n = 9 AND {first}"),
            "the history of its effect has 2 lines",
        ),
        (
            "UPDATE run SET in_flight = in_flight + 1".to_owned(),
            "UPDATE run SET in_flight = in_flight - 1".to_owned(),
            "in_flight of ",
        ),
        (
            "UPDATE run SET ambiguous = ambiguous + 1".to_owned(),
            "UPDATE run SET ambiguous = ambiguous - 1".to_owned(),
            "ambiguous of ",
        ),
        (
            "UPDATE run SET deliveries = deliveries - 1".to_owned(),
            "UPDATE run SET deliveries = deliveries + 1".to_owned(),
            "deliveries of ",
        ),
        (
            "UPDATE run SET state = 'closed'".to_owned(),
            "UPDATE run SET state = 'open'".to_owned(),
            "by its closure it is not closed",
        ),
        (
            "UPDATE effect SET state = 'ambiguous'".to_owned(),
            "UPDATE effect SET state = 'done'".to_owned(),
            "without an open quarantine",
        ),
    ] {
        assert_found(data, &spoil, &mend, &[expected, "restore it from a backup"]);
    }
}

#[test]
fn repair_restores_lost_files_of_a_closed_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_fast(data).start();
    let mut client = gate.client();
    let references: Vec<String> = (1..=3)
        .map(|n| push(&mut client, &envelope(n)).json()["receipt_ref"].as_str().unwrap().to_owned())
        .collect();
    // Stored outside of any run, with its body next to it.
    push(&mut client, &json!({ "event_type": "x" }));
    let path = format!("/v1/runs/{RUN}/close");
    let headers = [("content-type", "application/json")];
    let closed = client.send("POST", &path, &headers, b"").unwrap().json();
    let closure = closed["closure_ref"].as_str().unwrap_or_else(|| panic!("{closed}")).to_owned();
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");

    let files = [&references[0], &references[1], &closure].map(|path| artifact(data, path));
    let kept = files.each_ref().map(|file| fs::read(file).unwrap());
    fs::remove_file(&files[0]).unwrap();
    fs::write(&files[1], "{}\n").unwrap();
    fs::remove_file(&files[2]).unwrap();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(!agrees && printed.contains("3 disagreements found"), "{printed}");
    assert!(printed.contains("closure") && printed.contains("admit repair writes"), "{printed}");
    let VerifyOutput { agrees, printed } = run(&["repair", "--dry-run"], data);
    assert!(agrees && printed.contains("3 files") && !files[0].exists(), "{printed}");
    let VerifyOutput { agrees, printed } = run(&["repair"], data);
    assert!(agrees && printed.contains("3 files"), "{printed}");
    assert_eq!(files.each_ref().map(|file| fs::read(file).unwrap()), kept, "byte for byte");
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
}

#[test]
fn verify_recomputes_the_text_of_a_closure_from_its_row_and_receipts() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_fast(data).start();
    let mut client = gate.client();
    for n in [1, 2, 3, 1] {
        push(&mut client, &envelope(n));
    }
    let path = format!("/v1/runs/{RUN}/close");
    let headers = [("content-type", "application/json")];
    let closed = client.send("POST", &path, &headers, br#"{"reason":"over"}"#).unwrap().json();
    let closure = closed["closure_ref"].as_str().unwrap_or_else(|| panic!("{closed}")).to_owned();
    // A later copy does not change a closure.
    push(&mut client, &envelope(2));
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees && printed.ends_with("everything agrees\n"), "{printed}");

    let file = artifact(data, &closure);
    let kept: String = sql::query_one(data, "SELECT text FROM run_closure");
    let put = |text: &str| {
        // The file is damaged like the row, so only the receipts reveal it.
        fs::write(&file, format!("{text}\n")).unwrap();
        sql::execute(
            data,
            &format!("UPDATE run_closure SET text = '{}'", text.replace('\'', "''")),
        );
    };
    let who: String = sql::query_one(data, "SELECT begun_by FROM run_closure");
    for (from, to, part) in [
        ("\"admit\":3".to_owned(), "\"admit\":4", "ingress.admit"),
        ("\"duplicate\":1".to_owned(), "\"duplicate\":9", "ingress.duplicate"),
        ("\"reason\":\"over\"".to_owned(), "\"reason\":\"because\"", "reason"),
        (format!("\"closed_by\":\"{who}\""), "\"closed_by\":\"x\"", "closed_by"),
        ("\"closed_at_utc\":\"2".to_owned(), "\"closed_at_utc\":\"3", "closed_at_utc"),
    ] {
        let text = kept.replacen(&from, to, 1);
        assert_ne!(text, kept, "{from}");
        put(&text);
        let VerifyOutput { agrees, printed } = verify(data);
        let expected = format!("is not what its row and its receipts give: {part}");
        assert!(!agrees && printed.contains(&expected), "{part}: {printed}");
        assert!(printed.contains("1 disagreement found"), "{printed}");
    }
    put(&kept);
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
}

#[test]
fn repair_restores_lost_or_damaged_governance_lines() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_fast(data).start();
    let mut client = gate.client();
    for n in 1..=3 {
        push(&mut client, &envelope(n));
        let mut other = envelope(n);
        other["payload"]["amount"] = (100 + n).into();
        push(&mut client, &other);
    }
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
    let log = artifact(data, &format!("fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let kept = fs::read_to_string(&log).unwrap();
    let mut lines: Vec<&str> = kept.lines().collect();
    assert!(lines.len() >= 3, "{kept}");

    // One line is lost and one is damaged.
    let damaged = format!("{{{}", lines[1]);
    lines.remove(0);
    lines[0] = &damaged;
    fs::write(&log, format!("{}\n", lines.join("\n"))).unwrap();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(!agrees && printed.contains("2 disagreements found"), "{printed}");
    assert!(
        printed.contains("lacks the line of this document") && printed.contains("admit repair"),
        "{printed}"
    );
    let VerifyOutput { agrees, printed } = run(&["repair", "--dry-run"], data);
    assert!(agrees && printed.contains("2 governance lines would be written"), "{printed}");
    let VerifyOutput { agrees, printed } = run(&["repair"], data);
    assert!(agrees && printed.contains("2 governance lines written"), "{printed}");
    assert_lines(&log, &kept);
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");

    // The whole log is lost.
    fs::remove_file(&log).unwrap();
    let VerifyOutput { agrees, printed } = run(&["repair"], data);
    let all = kept.lines().count();
    assert!(agrees && printed.contains(&format!("{all} governance lines written")), "{printed}");
    assert_lines(&log, &kept);
    let VerifyOutput { agrees, printed } = run(&["repair"], data);
    assert!(agrees && printed.contains("0 governance lines written"), "once is enough: {printed}");
}

/// Checks that every line of `kept` is in the log once.
fn assert_lines(log: &Path, kept: &str) {
    let now = fs::read_to_string(log).unwrap();
    for line in kept.lines() {
        assert_eq!(now.lines().filter(|now| *now == line).count(), 1, "{line} in\n{now}");
    }
}

#[test]
fn a_cell_with_invalid_text_is_named_and_everything_else_is_checked() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=3 {
        client.submit(&match_begin(n, "a")).processed();
    }
    gate.stop();
    sql::execute(data, "UPDATE document SET text = CAST(x'7bfffe7d' AS TEXT)");
    sql::execute(data, "UPDATE admission SET facts = CAST(x'7bff7d' AS TEXT) WHERE seq = 2");
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(!agrees && printed.contains("cannot be read"), "{printed}");
    assert!(printed.contains("-2: row: the row cannot be read"), "{printed}");
    assert!(printed.contains("3 admissions (2 recomputed"), "it went on to the end: {printed}");
}

/// Columns with text in them, of each table.
fn text_cells(data: &Path) -> Vec<(String, Vec<String>)> {
    let tables: Vec<String> = sql::query_column(
        data,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' \
         AND name <> 'meta' ORDER BY name",
    );
    let mut cells = Vec::new();
    for table in tables {
        let columns: Vec<String> = sql::query_column(
            data,
            &format!("SELECT name FROM pragma_table_info('{table}') WHERE type = 'TEXT'"),
        );
        let has_text = |column: &String| {
            let texts = format!("SELECT count(*) FROM {table} WHERE typeof({column}) = 'text'");
            sql::query_one::<i64>(data, &texts) > 0
        };
        let columns: Vec<String> = columns.into_iter().filter(has_text).collect();
        if !columns.is_empty() {
            cells.push((table, columns));
        }
    }
    cells
}

#[test]
fn a_cell_that_is_no_text_ends_no_check_whatever_its_table() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_fast(data).variable("ADMIT_DOORS__ROUNDS__TOPIC", "rounds.v1").start();
    let mut client = gate.client();
    for n in [1, 2, 1] {
        push(&mut client, &envelope(n));
    }
    push(&mut client, &json!({ "event_type": "x" }));
    client.submit(&match_begin(1, "a")).processed();
    post_source_ok(&mut client, "stats_ready", &Round::nth(0).ready());
    let path = format!("/v1/runs/{RUN}/close");
    let closed = client.send("POST", &path, &[], b"").unwrap().json();
    let closure = artifact(data, closed["closure_ref"].as_str().unwrap());
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
    let (ledger, closure_text) = (data.join("ledger.db"), fs::read(&closure).unwrap());
    let whole = fs::read(&ledger).unwrap();
    let cells = text_cells(data);
    assert!(cells.iter().map(|(_, columns)| columns.len()).sum::<usize>() > 30, "{cells:?}");
    for (table, columns) in cells {
        let spoil = |column: &String| {
            format!(
                "UPDATE OR IGNORE {table} SET {column} = CAST(x'7bff' AS TEXT) \
                 WHERE typeof({column}) = 'text';"
            )
        };
        let unchecked = "PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1;";
        let spoilt: String = columns.iter().map(spoil).collect();
        sql::execute(data, &format!("{unchecked} {spoilt}"));
        for word in ["verify", "repair"] {
            let VerifyOutput { agrees, printed } = run(&[word], data);
            for column in &columns {
                let place = format!("{table}.{column} of row ");
                assert!(printed.contains(&place), "{word} {place}: {printed}");
            }
            let is_whole = printed.contains("artifacts") || word == "repair";
            assert!(agrees == (word == "repair") && is_whole, "{word} {table}: {printed}");
        }
        assert_eq!(fs::read(&closure).unwrap(), closure_text, "{table}");
        fs::write(&ledger, &whole).unwrap();
    }
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
}

#[test]
fn verify_finds_inconsistent_records() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let round = Round::reference();
    for source in SOURCES {
        post_source_ok(&mut client, source, &round.post(source));
    }
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees, "{printed}");
    let one = "seq = (SELECT min(seq) FROM record_event WHERE record_id IS NOT NULL)";
    let is = |column: &str| -> String {
        sql::query_one(data, &format!("SELECT {column} FROM record_event WHERE {one}"))
    };
    let (record, state) = (is("record_id"), is("state"));
    let field = format!("record_id = '{record}' AND name = (SELECT min(name) FROM record_field)");
    let event: i64 = sql::query_one(data, &format!("SELECT event FROM record_field WHERE {field}"));
    for (spoil, mend, expected) in [
        (
            format!("UPDATE record_event SET state = 'lost' WHERE {one}"),
            format!("UPDATE record_event SET state = '{state}' WHERE {one}"),
            "its event is lost, its history ends with",
        ),
        (
            format!("UPDATE record_field SET event = 900000 WHERE {field}"),
            format!("UPDATE record_field SET event = {event} WHERE {field}"),
            "has no record or no event of it",
        ),
        (
            "UPDATE record SET record_id = 'x' || record_id".to_owned(),
            "UPDATE record SET record_id = substr(record_id, 2)".to_owned(),
            "which does not exist",
        ),
    ] {
        assert_found(data, &spoil, &mend, &["record: ", expected]);
    }
}

#[test]
fn verify_recomputes_links_and_merged_values_from_the_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    for round in [Round::reference(), Round::nth(1), Round::nth(2), Round::nth(11)] {
        for source in SOURCES {
            post_source_ok(&mut client, source, &round.post(source));
            post_source_ok(&mut client, source, &round.post(source));
        }
    }
    // No event opens a round for it.
    let alone = Round::reference().later(5);
    post_source_ok(&mut client, SOURCES[1], &alone.post(SOURCES[1]));
    gate.stop();
    let VerifyOutput { agrees, printed } = verify(data);
    assert!(agrees && printed.ends_with("everything agrees\n"), "{printed}");
    assert!(printed.contains("4 records and 17 links recomputed"), "{printed}");

    let one = "seq = (SELECT max(seq) FROM record_event WHERE record_id IS NOT NULL)";
    let get = |column: &str, table: &str, row: &str| -> String {
        sql::query_one(data, &format!("SELECT CAST({column} AS TEXT) FROM {table} WHERE {row}"))
    };
    let record = get("record_id", "record_event", one);
    let other = get("record_id", "record", &format!("record_id <> '{record}' LIMIT 1"));
    let merged = format!("record_id = '{record}' AND name = 'winner_team'");
    let this = format!("record_id = '{record}'");
    let link = get("link", "record_event", one);
    let moved = link.replace(&record, &other);
    let both = |id: &str, link: &str| {
        let link = link.replace('\'', "''");
        format!("UPDATE record_event SET record_id = '{id}', link = '{link}' WHERE {one}")
    };
    assert_found(
        data,
        &both(&other, &moved),
        &both(&record, &link),
        &[
            "its link has another record than the rule computes for its events",
            "restore it from a backup",
        ],
    );
    for (table, column, row, value, expected) in [
        ("record_field", "value", &*merged, "7", "the field winner_team of the record"),
        ("record_field", "source", &*merged, "unknown", "the field winner_team of the record"),
        ("record", "date", &*this, "2001-01-01", "the date of the record"),
        ("record", "fingerprints", &*this, "{}", "the list of fingerprints of the record"),
        (
            "record_event",
            "confidence",
            one,
            "none",
            "columns of its event differ from its stored text: confidence",
        ),
    ] {
        let before = get(column, table, row);
        let set = |value: &str| format!("UPDATE {table} SET {column} = '{value}' WHERE {row}");
        assert_found(data, &set(value), &set(&before), &["record: ", expected]);
    }
    let lost = get("seq", "record_event", one);
    let fields = get("fields", "record_told", &format!("seq = {lost}")).replace('\'', "''");
    let set_fields =
        |text: &str| format!("UPDATE record_told SET fields = '{text}' WHERE seq = {lost}");
    assert_found(
        data,
        &set_fields("{\"map_name\":\"moon\"}"),
        &set_fields(&fields),
        &["the fields of its event differ from its body"],
    );
}
