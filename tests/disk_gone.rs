//! A ledger that is taken away, emptied, or whose log is damaged: no gate begins anew in its place.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::machine::text;
use crate::support::sql;

/// So many events are acknowledged, each with a commit of its own.
const EVENTS: u64 = 8;

/// A folder as a killed gate leaves it.
fn killed(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.say(&match_begin(n, "a")).processed();
    }
    gate.kill();
}

/// Garbles a log in the middle of what is written in it; a log that has grown ends with zeros.
fn garble_the_middle(log: &mut [u8]) {
    let end = log.iter().rposition(|byte| *byte != 0).expect("something is in it");
    log[end / 2..end / 2 + 100].fill(0xa5);
}

fn all_are_known(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.say(&match_begin(n, "a").attempt(2)).duplicate();
    }
    gate.stop();
}

#[test]
fn a_ledger_that_is_gone_or_empty_is_not_begun_anew() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    Gate::on(folder.path()).stop();
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    type Take = fn(&Path);
    let takes: [(&str, Take); 2] = [
        ("not there", |file| fs::remove_file(file).unwrap()),
        ("empty", |file| fs::write(file, b"").unwrap()),
    ];
    for (missing, take) in takes {
        take(&file);
        let ended = Launch::on(folder.path()).start_in_vain();
        assert_eq!(ended.status.code(), Some(1), "{missing}: {}", ended.stderr);
        assert!(ended.stderr.contains(text(&file)), "{missing}: {}", ended.stderr);
        assert!(ended.stderr.contains(missing), "{missing}: {}", ended.stderr);
        assert!(ended.stderr.contains("backup"), "{missing}: what to do: {}", ended.stderr);
        fs::write(&file, &whole).unwrap();
    }
    all_are_known(folder.path());
    // Whoever wants a new ledger says so.
    fs::remove_file(&file).unwrap();
    fs::remove_file(folder.path().join("ledger.id")).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    gate.stop();
}

#[test]
fn a_log_that_is_damaged_is_not_opened_and_not_touched() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let whole = fs::read(&log).unwrap();
    type Damage = fn(&mut [u8]);
    let damages: [(&str, Damage); 3] = [
        ("a garbled header", |bytes| bytes[..32].fill(b'x')),
        ("a garbled middle", garble_the_middle),
        ("nothing but garbage", |bytes| bytes.fill(0x5a)),
    ];
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&log, &bytes).unwrap();
        let ended = Launch::on(folder.path()).start_in_vain();
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(text(&log)), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("damaged"), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("wal_checkpoint(TRUNCATE)"), "{name}: {}", ended.stderr);
        assert!(fs::read(&log).unwrap() == bytes, "{name}: evidence is left as it is");
    }
    fs::write(&log, &whole).unwrap();
    all_are_known(folder.path());
}

#[test]
fn whoever_accepts_the_loss_of_a_damaged_log_goes_on_with_what_is_readable() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    garble_the_middle(&mut bytes);
    fs::write(&log, &bytes).unwrap();
    Launch::on(folder.path()).start_in_vain();
    let conn = Connection::open(folder.path().join("ledger.db")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a").attempt(2)).duplicate();
    gate.client().say(&match_begin(EVENTS, "a").attempt(2)).processed();
    gate.stop();
}

#[test]
fn a_gate_whose_ledger_is_taken_away_acknowledges_nothing_more_and_stops() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    fs::rename(folder.path().join("ledger.db"), folder.path().join("elsewhere.db")).unwrap();
    gate.client().say(&match_begin(2, "a")).unavailable();
    let ended = gate.ended();
    assert_eq!(ended.status.code(), Some(74), "{}", ended.stderr);
    assert!(ended.stderr.contains("removed or replaced"), "{}", ended.stderr);
}
