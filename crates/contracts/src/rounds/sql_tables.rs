//! SQL tables for queries: the rows of each source, with the column names that existing readers
//! use.

use admit_core::entity::{Cell, Table};

use super::policy::{GAMETIME_FALLBACK, LUA_SPAWN_STATS, PROXIMITY_FILE, STATS_READY};

/// Player ids are cut to the width of the readers' columns.
const GUID_CHARS_MAX: usize = 32;

const GUID: Cell = Cell::Cut(&["guid", "player_guid"], GUID_CHARS_MAX);
const NAME: Cell = Cell::Member(&["name", "player_name"]);

/// First part of the key of all rows of a proximity file.
const SESSION: (&str, Cell) = ("session_date", Cell::Date("session_date"));
const NUMBER: (&str, Cell) = ("round_number", Cell::Number);
const START: (&str, Cell) = ("round_start_unix", Cell::Start);
const MAP: (&str, Cell) = ("map_name", Cell::Group);
/// On two servers, two maps may begin at the same second of one day.
const KEY_MAP: (&str, Cell) = ("map_name", Cell::KeyGroup);
const DATA: (&str, Cell) = ("data", Cell::Element);

const GRID_KEY: &[&str] =
    &["session_date", "round_number", "round_start_unix", "map_name", "grid_x", "grid_y"];
const GRID: &[(&str, Cell)] = &[
    SESSION,
    NUMBER,
    START,
    ("grid_x", Cell::Member(&["grid_x", "x"])),
    ("grid_y", Cell::Member(&["grid_y", "y"])),
    KEY_MAP,
    DATA,
];

/// All tables; their unique keys are also in the ledger's migrations.
pub const TABLES: &[Table] = &[
    Table {
        name: "lua_round_teams",
        sources: &[STATS_READY, GAMETIME_FALLBACK],
        list: None,
        key: &["match_id", "round_number"],
        columns: &[
            ("match_id", Cell::Field("match_id")),
            NUMBER,
            MAP,
            ("round_start_unix", Cell::Field("round_start_unix")),
            ("round_end_unix", Cell::Field("round_end_unix")),
            ("actual_duration_seconds", Cell::Field("actual_duration_seconds")),
            ("total_pause_seconds", Cell::Field("total_pause_seconds")),
            ("pause_count", Cell::Field("pause_count")),
            ("end_reason", Cell::Field("end_reason")),
            ("winner_team", Cell::Field("winner_team")),
            ("defender_team", Cell::Field("defender_team")),
            ("time_limit_minutes", Cell::Field("time_limit_minutes")),
            ("lua_warmup_seconds", Cell::Field("lua_warmup_seconds")),
            ("lua_warmup_start_unix", Cell::Field("lua_warmup_start_unix")),
            ("lua_pause_events", Cell::Field("lua_pause_events")),
            ("surrender_team", Cell::Field("surrender_team")),
            ("surrender_caller_guid", Cell::Field("surrender_caller_guid")),
            ("surrender_caller_name", Cell::Field("surrender_caller_name")),
            ("axis_score", Cell::Field("axis_score")),
            ("allies_score", Cell::Field("allies_score")),
            ("axis_players", Cell::Field("axis_players")),
            ("allies_players", Cell::Field("allies_players")),
            ("lua_version", Cell::Field("lua_version")),
        ],
    },
    Table {
        name: "lua_spawn_stats",
        sources: &[LUA_SPAWN_STATS, STATS_READY, GAMETIME_FALLBACK],
        list: Some("spawn_stats"),
        key: &["match_id", "round_number", "player_guid"],
        columns: &[
            ("match_id", Cell::Field("match_id")),
            NUMBER,
            ("player_guid", GUID),
            ("player_name", NAME),
            ("spawn_count", Cell::Member(&["spawns", "spawn_count"])),
            ("death_count", Cell::Member(&["deaths", "death_count"])),
            ("dead_seconds", Cell::Member(&["dead_seconds"])),
            ("avg_respawn_seconds", Cell::Member(&["avg_respawn", "avg_respawn_seconds"])),
            ("max_respawn_seconds", Cell::Member(&["max_respawn", "max_respawn_seconds"])),
            MAP,
            ("round_end_unix", Cell::Field("round_end_unix")),
        ],
    },
    Table {
        name: "combat_engagement",
        sources: &[PROXIMITY_FILE],
        list: Some("engagements"),
        key: &["session_date", "round_number", "round_start_unix", "map_name", "engagement_id"],
        columns: &[
            SESSION,
            NUMBER,
            START,
            ("engagement_id", Cell::Member(&["engagement_id", "id"])),
            KEY_MAP,
            DATA,
        ],
    },
    Table {
        name: "player_track",
        sources: &[PROXIMITY_FILE],
        list: Some("player_tracks"),
        key: &[
            "session_date",
            "round_number",
            "round_start_unix",
            "map_name",
            "player_guid",
            "spawn_time_ms",
        ],
        columns: &[
            SESSION,
            NUMBER,
            START,
            ("player_guid", GUID),
            ("spawn_time_ms", Cell::Member(&["spawn_time_ms", "spawn_time"])),
            ("player_name", NAME),
            KEY_MAP,
            DATA,
        ],
    },
    Table {
        name: "proximity_objective_focus",
        sources: &[PROXIMITY_FILE],
        list: Some("objective_focus"),
        key: &["session_date", "round_number", "round_start_unix", "map_name", "player_guid"],
        columns: &[
            SESSION,
            NUMBER,
            START,
            ("player_guid", GUID),
            ("player_name", NAME),
            KEY_MAP,
            DATA,
        ],
    },
    Table {
        name: "proximity_kill_heatmap",
        sources: &[PROXIMITY_FILE],
        list: Some("kill_heatmap"),
        key: GRID_KEY,
        columns: GRID,
    },
    Table {
        name: "proximity_movement_heatmap",
        sources: &[PROXIMITY_FILE],
        list: Some("movement_heatmap"),
        key: GRID_KEY,
        columns: GRID,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_the_columns_of_its_key() {
        for table in TABLES {
            for name in table.key {
                let known = table.columns.iter().any(|(column, _)| column == name);
                assert!(known, "{} has no {name}", table.name);
            }
        }
    }
}
