//! Which tables are copied, and what differs between the two databases.

/// A table of the ledger.
pub(crate) struct Plan {
    /// Its name, the same in both.
    pub(crate) name: &'static str,
    /// Where its rows come from; the table itself unless it says otherwise.
    pub(crate) rows: Option<&'static str>,
    /// What says how many they are, where counting them takes long.
    pub(crate) count: Option<&'static str>,
    /// Columns whose value is another expression in SQLite.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    /// The column that goes on counting by itself.
    pub(crate) counts: Option<&'static str>,
    /// What names a row, where the rows are only made from events and can be left out.
    pub(crate) key: &'static [&'static str],
}

const fn plain(name: &'static str) -> Plan {
    Plan { name, rows: None, count: None, columns: &[], counts: None, key: &[] }
}

const fn made(name: &'static str, key: &'static [&'static str]) -> Plan {
    Plan { key, ..plain(name) }
}

const LAST_GATE: &str = "coalesce((SELECT max(epoch) FROM gate), 0)";

/// SQLite counts once for all gates up to which document files are safe; the last gate answers for it.
const LAST_GATE_ISSUED_TO: &str = "CASE epoch WHEN (SELECT max(epoch) FROM gate) \
     THEN coalesce((SELECT max(n) FROM issued), 0) ELSE 0 END";
const LAST_GATE_SYNCED_TO: &str = "CASE epoch WHEN (SELECT max(epoch) FROM gate) \
     THEN coalesce((SELECT value FROM meta WHERE name = 'artifacts_synced'), 0) ELSE 0 END";

const PLAYER: &[&str] =
    &["session_date", "round_number", "round_start_unix", "map_name", "player_guid"];
const GRID: &[&str] =
    &["session_date", "round_number", "round_start_unix", "map_name", "grid_x", "grid_y"];

/// All of them, each once.
pub(crate) const PLANS: &[Plan] = &[
    // The others have a place of their own in the head.
    Plan {
        rows: Some(
            "(SELECT name, value FROM meta WHERE name NOT IN ('tag', 'last_seq', 'admissions', \
             'sightings', 'keys', 'artifacts_synced'))",
        ),
        ..plain("meta")
    },
    // Whoever wrote these is dead: what it left is looked after by the next gate.
    Plan {
        columns: &[
            ("alive_until", "'epoch'"),
            ("issued_to", LAST_GATE_ISSUED_TO),
            ("synced_to", LAST_GATE_SYNCED_TO),
        ],
        counts: Some("epoch"),
        ..plain("gate")
    },
    plain("admission"),
    plain("body"),
    plain("sighting"),
    // SQLite keeps keys in several places on their way.
    Plan {
        rows: Some("claimed_key"),
        count: Some("SELECT sum(value) FROM meta WHERE name = 'keys'"),
        ..plain("key_index")
    },
    plain("document"),
    plain("refusal_quota"),
    plain("claim_head"),
    plain("claim"),
    plain("claim_finished"),
    plain("retain_later"),
    Plan { counts: Some("id"), ..plain("clock_confirmation") },
    plain("effect"),
    plain("effect_history"),
    Plan { columns: &[("place", "rowid")], ..plain("event_inbox") },
    Plan { columns: &[("epoch", LAST_GATE)], ..plain("issued") },
    plain("run"),
    plain("run_closure"),
    plain("record_event"),
    plain("record_told"),
    plain("record"),
    plain("record_field"),
    plain("record_history"),
    plain("record_publication"),
    plain("record_publication_history"),
    made("lua_round_teams", &["match_id", "round_number"]),
    made("lua_spawn_stats", &["match_id", "round_number", "player_guid"]),
    made(
        "combat_engagement",
        &["session_date", "round_number", "round_start_unix", "map_name", "engagement_id"],
    ),
    made(
        "player_track",
        &[
            "session_date",
            "round_number",
            "round_start_unix",
            "map_name",
            "player_guid",
            "spawn_time_ms",
        ],
    ),
    made("proximity_objective_focus", PLAYER),
    made("proximity_kill_heatmap", GRID),
    made("proximity_movement_heatmap", GRID),
    plain("sr_run_equivalence"),
    plain("sr_run"),
    plain("sr_run_document"),
    Plan { counts: Some("n"), ..plain("sr_run_event") },
    plain("sr_publication"),
];

/// Tables of SQLite whose rows go elsewhere, or nowhere: whoever led a run is gone.
pub(crate) const ELSEWHERE: [&str; 4] = ["key_log", "key_page", "key_region", "sr_run_leases"];
