//! Linking an event reads a bounded number of rows, however large its group is.

use admit_core::Key;
use admit_core::entity::{
    Confidence, EntityInput, LinkDiagnostics, LinkStatus, MatchBasis, NumberTrust, Policy,
    ProcessingState, ReplayRule, SourcePolicy,
};
use admit_core::entity::{Link, SourceEvent};
use admit_core::{Millis, Seq};
use rusqlite::{Connection, StatementStatus};

use crate::common::records::candidates::LoadedCandidates;
use crate::common::records::{NewEvent, Tables as _, Write};
use crate::db::Statement;
use crate::sqlite::open;
use crate::tables::record::{RecordTables, queries};

const DOOR: &str = "rounds";
const FILES: i64 = 10_000;
const EVENTS_MAX: usize = 200;

const SOURCES: &[SourcePolicy] = &[source("script", false), source("file", true)];

const fn source(name: &'static str, opens: bool) -> SourcePolicy {
    let (replay, number, stamp) = (ReplayRule::Skip, NumberTrust::Trusted, None);
    SourcePolicy { name, family: name, opens, is_led: false, replay, number, stamp }
}

fn policy() -> Policy {
    Policy {
        sources: SOURCES,
        domains: &[],
        order: &["script", "file"],
        window_seconds: 2_700,
        span_seconds: 3_600,
        tolerance_seconds: 60,
        events_max: EVENTS_MAX,
        id_prefix: "rec-",
        tables: &[],
    }
}

fn event(seq: i64, source: &str, time: i64) -> SourceEvent {
    let own = format!("{source}{seq}");
    let mut event = SourceEvent::new(source, Key::derive(DOOR, &[own.as_bytes()]), Millis(1));
    event.seq = Seq(seq.unsigned_abs());
    event.group = "supply".to_owned();
    event.number = Some(1);
    event.event_time = Some(time);
    event
}

fn link() -> Link {
    Link {
        status: LinkStatus::Unlinked,
        state: ProcessingState::LinkFailed,
        reason: "no_rows_for_map_round".to_owned(),
        confidence: Confidence::Low,
        matched: None::<MatchBasis>,
        record_id: None,
        fingerprints: Vec::new(),
        number: Some(1),
        number_from: None,
        is_applied: false,
        attempt: 1,
        diagnostics: LinkDiagnostics::default(),
        unsent: None,
    }
}

/// A ledger with many events of one map within a few hours.
fn crowded(source: &str) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let conn = open::recover(&folder.path().join("ledger.db")).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    for n in 0..FILES {
        let (event, link) = (event(n + 1, source, 1_000_000 + n), link());
        let new = Write::Event(NewEvent::of(DOOR, &event, &link));
        RecordTables::new(&conn).write(&[new], &[]).unwrap();
    }
    conn.execute_batch("COMMIT; ANALYZE").unwrap();
    (folder, conn)
}

#[test]
fn in_a_crowd_only_the_nearest_are_read_on_each_side() {
    let (_folder, conn) = crowded("file");
    for at in [1_000_000, 1_005_000, 1_000_000 + FILES - 1] {
        let arrival = event(FILES + 1, "script", at);
        let rule = EntityInput { policy: policy().into(), event: arrival.clone() };
        let near =
            LoadedCandidates::load(&mut RecordTables::new(&conn), DOOR, &rule, &arrival).unwrap();
        assert!(near.events.len() <= EVENTS_MAX, "{} rows at {at}", near.events.len());
        let half = i64::try_from(EVENTS_MAX / 2).unwrap();
        let times = near.events.iter().filter_map(|event| event.event_time);
        assert!(times.clone().all(|time| time.abs_diff(at) <= half.unsigned_abs()));
        let (from, to) = near.covered.expect("not all of the range was read");
        assert!(from <= at + 1 && to >= at - 1 && to - from <= 48 * 3_600, "{from} {to}");
    }
    let lonely = event(FILES + 1, "script", 9_000_000);
    let rule = EntityInput { policy: policy().into(), event: lonely.clone() };
    let near = LoadedCandidates::load(&mut RecordTables::new(&conn), DOOR, &rule, &lonely).unwrap();
    assert_eq!((near.events.len(), near.covered), (0, None));
    assert_eq!(near.far.len(), 1, "the event beyond the range is found all the same");
}

#[test]
fn reading_a_crowd_sorts_nothing_and_steps_over_nothing() {
    // None of them opens a record, so nothing stops a search for one that does.
    let (_folder, conn) = crowded("script");
    let half = i64::try_from(EVENTS_MAX / 2).unwrap();
    let (from, at, to) = (950_000, 1_005_000, 1_050_000);
    let near = |query: &Statement, from: i64, to: i64| {
        let mut statement = conn.prepare(query.sqlite()).unwrap();
        let found = statement.query_map((DOOR, "supply", from, to, half), |_| Ok(())).unwrap();
        assert_eq!(found.count(), EVENTS_MAX / 2);
        spent(&statement)
    };
    let steps = [near(&queries::NEAR_BEFORE, from, at), near(&queries::NEAR_AFTER, at + 1, to)];
    for steps in steps {
        assert!(steps < 40 * EVENTS_MAX, "{steps} steps for {EVENTS_MAX} rows");
    }
    for query in [&queries::FAR_BEFORE, &queries::FAR_AFTER] {
        let mut statement = conn.prepare(query.sqlite()).unwrap();
        let found = statement.query_map((DOOR, "supply", 1, "file", at), |_| Ok(())).unwrap();
        assert_eq!(found.count(), 0);
        assert!(spent(&statement) < 100, "{} steps to find nothing", spent(&statement));
    }
}

/// Steps that the database needed for a statement; it must not have sorted.
fn spent(statement: &rusqlite::Statement<'_>) -> usize {
    assert_eq!(statement.get_status(StatementStatus::Sort), 0);
    usize::try_from(statement.get_status(StatementStatus::VmStep)).unwrap()
}
