//! Copied tables, and the differences between the two databases.

/// Plan of one table.
pub(crate) struct TablePlan {
    /// Name, the same in both databases.
    pub(crate) name: &'static str,
    /// Source of its rows; the table itself if `None`.
    pub(crate) rows: Option<&'static str>,
    /// Query for its row count, if counting the rows takes long.
    pub(crate) count: Option<&'static str>,
    /// Columns with another expression in SQLite.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    /// The auto-increment column.
    pub(crate) counts: Option<&'static str>,
    /// Key columns of a table made from events, whose invalid rows can be skipped.
    pub(crate) key: &'static [&'static str],
}

const fn plain(name: &'static str) -> TablePlan {
    TablePlan { name, rows: None, count: None, columns: &[], counts: None, key: &[] }
}

const fn made(name: &'static str, key: &'static [&'static str]) -> TablePlan {
    TablePlan { key, ..plain(name) }
}

const LAST_GATE: &str = "coalesce((SELECT max(epoch) FROM gate), 0)";

/// SQLite has one cursor of safe document files for all gates; it goes to the last gate.
const LAST_GATE_ISSUED_TO: &str = "CASE epoch WHEN (SELECT max(epoch) FROM gate) \
     THEN coalesce((SELECT max(n) FROM issued), 0) ELSE 0 END";
const LAST_GATE_SYNCED_TO: &str = "CASE epoch WHEN (SELECT max(epoch) FROM gate) \
     THEN coalesce((SELECT value FROM meta WHERE name = 'artifacts_synced'), 0) ELSE 0 END";

const PLAYER: &[&str] =
    &["session_date", "round_number", "round_start_unix", "map_name", "player_guid"];
const GRID: &[&str] =
    &["session_date", "round_number", "round_start_unix", "map_name", "grid_x", "grid_y"];

/// All copied tables.
pub(crate) const PLANS: &[TablePlan] = &[
    // The excluded values are columns of the head.
    TablePlan {
        rows: Some(
            "(SELECT name, value FROM meta WHERE name NOT IN ('tag', 'last_seq', 'admissions', \
             'sightings', 'keys', 'artifacts_synced'))",
        ),
        ..plain("meta")
    },
    // These gates are dead: the next gate recovers their effects.
    TablePlan {
        columns: &[
            ("alive_until", "'epoch'"),
            ("lease_ms", "0"),
            ("issued_to", LAST_GATE_ISSUED_TO),
            ("synced_to", LAST_GATE_SYNCED_TO),
        ],
        counts: Some("epoch"),
        ..plain("gate")
    },
    plain("admission"),
    plain("body"),
    plain("sighting"),
    // SQLite stores keys in several tables.
    TablePlan {
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
    TablePlan { counts: Some("id"), ..plain("clock_confirmation") },
    plain("effect"),
    plain("effect_history"),
    TablePlan { columns: &[("place", "rowid")], ..plain("event_inbox") },
    TablePlan { columns: &[("epoch", LAST_GATE)], ..plain("issued") },
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
    TablePlan { counts: Some("n"), ..plain("sr_run_event") },
    plain("sr_publication"),
];

/// Tables of SQLite whose rows go elsewhere, or nowhere: the leases of runs have ended.
pub(crate) const NOT_COPIED: [&str; 4] = ["key_log", "key_page", "key_region", "sr_run_leases"];
