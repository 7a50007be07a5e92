//! Vacuum of a ledger in PostgreSQL: settings and effect.

use std::thread;

use crate::support::cluster::Cluster;
use crate::support::events::match_begin;
use crate::support::ingest::{envelope, outcome, push};
use crate::support::{TIMEOUT, wait_for};

const EVENTS: u64 = 400;
const PRODUCERS: u64 = 4;

/// Number of updates of a table, and of those that changed no index.
fn changes(cluster: &Cluster, table: &str) -> (i64, i64) {
    let sql = format!(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{table}'"
    );
    let row = &cluster.rows(&sql)[0];
    (row.get(0), row.get(1))
}

#[test]
fn frequently_updated_tables_stay_small() {
    let Some(cluster) = Cluster::start(2, &[]) else { return };
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let mut client = cluster.with(producer as usize % 2, |gate| gate.client());
            scope.spawn(move || {
                for n in (0..EVENTS).filter(|n| n % PRODUCERS == producer) {
                    assert_eq!(outcome(&push(&mut client, &envelope(n))), "ADMIT");
                }
            });
        }
    });
    let commits: i64 = cluster.query_one("SELECT last_seq FROM head");
    assert_eq!(commits as u64, EVENTS);
    // Sessions report their statistics when they become idle.
    let published = wait_for("the statistics are in", TIMEOUT, || {
        let (changed, _) = changes(&cluster, "effect");
        (changed as u64 >= EVENTS).then_some(changed)
    });
    for table in ["head", "run"] {
        let (changed, in_place) = changes(&cluster, table);
        assert!(changed > 50, "{table} was changed {changed} times");
        assert!(in_place * 10 >= changed * 9, "{table}: {in_place} of {changed} in place");
    }
    let pages = |table: &str| -> i64 {
        cluster.query_one(&format!("SELECT pg_relation_size('{table}') / 8192"))
    };
    for table in ["head", "run", "gate"] {
        assert!(pages(table) <= 4, "{table} has {} pages after {published} steps", pages(table));
    }
    // Dead rows are reused: a second round of the same updates does not grow the table.
    let vacuum = || cluster.server.run("postgres", "VACUUM claim_token").unwrap();
    vacuum();
    let before = pages("claim_token");
    let mut client = cluster.with(0, |gate| gate.client());
    for n in EVENTS..EVENTS + 100 {
        assert_eq!(outcome(&push(&mut client, &envelope(n))), "ADMIT");
    }
    vacuum();
    assert!(pages("claim_token") <= before + 4, "{} pages, {before} before", pages("claim_token"));
    cluster.stop_all();
}

#[test]
fn every_table_has_explicit_vacuum_settings() {
    let places = [("ADMIT_LEDGER__PARTITION_PLACES", "1000")];
    let Some(cluster) = Cluster::start(1, &places) else { return };
    // Partitions are created by the first commit that needs them.
    cluster.with(0, |gate| gate.client().submit(&match_begin(1, "a")).processed());
    let has = |table: &str, option: &str| -> bool {
        cluster.query_one::<i64>(&format!(
            "SELECT count(*) FROM pg_class, unnest(reloptions) o WHERE oid = '{table}'::regclass \
             AND o LIKE '{option}=%'"
        )) == 1
    };
    let grown = cluster.rows("SELECT name FROM growth");
    assert!(grown.len() >= 2);
    let grown = grown.iter().map(|row| row.get::<String>(0));
    let keys = (0..16).map(|n| format!("key_index_{n}"));
    let added = ["admission", "effect_history", "record_told", "record_history"].map(str::to_owned);
    for table in grown.chain(keys).chain(added) {
        assert!(has(&table, "autovacuum_freeze_min_age"), "{table} only grows");
    }
    for table in ["head", "effect", "run", "record", "record_event", "event_inbox", "document"] {
        assert!(has(table, "fillfactor"), "rows of {table} change");
        assert!(has(table, "autovacuum_vacuum_scale_factor"), "rows of {table} die");
    }
    for table in ["claim_token", "claim", "retain_later"] {
        assert!(has(table, "autovacuum_vacuum_threshold"), "rows of {table} come and go");
    }
    cluster.stop_all();
}
