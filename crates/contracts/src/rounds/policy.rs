//! Merge policy of this contract: sources, hard keys, domains, replay rules.
//!
//! All domain knowledge of the merge and the linker about rounds is in this table.

use admit_core::entity::{FieldDomain, NumberTrust, Policy, ReplayRule, SourcePolicy};

use super::sql_tables::TABLES;

/// Stats file, or the message that names it. Creates the round record.
pub const FILENAME_TRIGGER: &str = "filename_trigger";
/// Message that the script on the server posts when a round is over.
pub const STATS_READY: &str = "stats_ready";
/// File that the same script writes.
pub const GAMETIME_FALLBACK: &str = "gametime_fallback";
/// Spawns and deaths of each player, by the same script.
pub const LUA_SPAWN_STATS: &str = "lua_spawn_stats";
/// File of the proximity tracker.
pub const PROXIMITY_FILE: &str = "proximity_file";

/// All source names.
pub const SOURCES: [&str; 5] =
    [FILENAME_TRIGGER, STATS_READY, GAMETIME_FALLBACK, LUA_SPAWN_STATS, PROXIMITY_FILE];

/// Hard key of each source, for display; built in `source_event.rs`.
pub const HARD_KEYS: [(&str, &str); 5] = [
    (FILENAME_TRIGGER, "round_date|round_time|map_name|round_number"),
    (STATS_READY, "match_id|round_number"),
    (GAMETIME_FALLBACK, "match_id|round_number"),
    (LUA_SPAWN_STATS, "match_id|round_number, each player_guid a row"),
    (PROXIMITY_FILE, "map_name|round_number|round_start_unix, else the file name"),
];

/// Longest duration of a round, equal to the hour by which clocks are turned back.
const SPAN_SECONDS: i64 = 3600;
/// Two ends under one hard key that differ by more belong to two rounds in the repeated hour.
const TOLERANCE_SECONDS: i64 = 60;
/// Maximum number of events for a map in the hours around a round; beyond that, the nearest are
/// used.
const EVENTS_MAX: usize = 2048;

/// Family of the two messages of the script: they share `lua_round_teams`.
const LUA: &str = "lua";

/// Fields that a replay of the script's messages fills if missing and never replaces.
const LUA_KEEPS: &[&str] = &["round_start_unix", "map_name"];

/// Sources by priority. If two contradict each other about the time of a round, the first wins.
const SOURCE_TABLE: &[SourcePolicy] = &[
    SourcePolicy {
        name: STATS_READY,
        family: LUA,
        opens: false,
        is_led: false,
        replay: ReplayRule::Overwrite { keeps: LUA_KEEPS },
        number: NumberTrust::Trusted,
        stamp: Some("captured_at"),
    },
    SourcePolicy {
        name: GAMETIME_FALLBACK,
        family: LUA,
        opens: false,
        is_led: false,
        replay: ReplayRule::Overwrite { keeps: LUA_KEEPS },
        number: NumberTrust::Trusted,
        stamp: Some("captured_at"),
    },
    SourcePolicy {
        name: LUA_SPAWN_STATS,
        family: LUA,
        opens: false,
        is_led: true,
        replay: ReplayRule::Overwrite { keeps: &["map_name", "round_end_unix"] },
        number: NumberTrust::Trusted,
        stamp: None,
    },
    SourcePolicy {
        name: FILENAME_TRIGGER,
        family: FILENAME_TRIGGER,
        opens: true,
        is_led: false,
        replay: ReplayRule::Skip,
        number: NumberTrust::Trusted,
        stamp: None,
    },
    SourcePolicy {
        name: PROXIMITY_FILE,
        family: PROXIMITY_FILE,
        opens: false,
        is_led: false,
        replay: ReplayRule::Overwrite { keeps: &[] },
        // The tracker writes 1 for the second half too, in the header and in the file name.
        number: NumberTrust::Corrected(&[(GAMETIME_FALLBACK, "gametime"), (STATS_READY, "lua")]),
        stamp: None,
    },
];

/// Priority of the sources per domain.
const DOMAIN_TABLE: &[FieldDomain] = &[
    FieldDomain {
        name: "identity",
        fields: &["map_name", "round_number", "round_date", "round_time", "filename"],
        authority: &[FILENAME_TRIGGER],
        is_exclusive: false,
        is_total: false,
        is_whole: false,
        row_key: None,
    },
    FieldDomain {
        name: "timing",
        fields: &[
            "round_start_unix",
            "round_end_unix",
            "actual_duration_seconds",
            "total_pause_seconds",
            "pause_count",
            "time_limit_minutes",
            "lua_warmup_seconds",
            "lua_warmup_start_unix",
            "lua_pause_events",
            "duration*",
            "pause*",
            "warmup*",
        ],
        authority: &[STATS_READY, GAMETIME_FALLBACK],
        is_exclusive: false,
        is_total: false,
        is_whole: false,
        row_key: None,
    },
    FieldDomain {
        name: "stopwatch",
        fields: &["round_stopwatch_state", "time_to_beat_seconds", "next_timelimit_minutes"],
        authority: &[STATS_READY, GAMETIME_FALLBACK],
        is_exclusive: false,
        is_total: false,
        // The time to beat of one source must not be combined with the full hold of another.
        is_whole: true,
        row_key: None,
    },
    FieldDomain {
        name: "outcome",
        fields: &[
            "winner_team",
            "defender_team",
            "end_reason",
            "axis_score",
            "allies_score",
            "score*",
            "surrender*",
            "axis_players",
            "allies_players",
            "lua_version",
            "captured_at",
            "match_id",
        ],
        authority: &[STATS_READY, GAMETIME_FALLBACK],
        is_exclusive: false,
        is_total: false,
        is_whole: false,
        row_key: None,
    },
    FieldDomain {
        name: "spawns",
        fields: &["spawn_stats"],
        authority: &[LUA_SPAWN_STATS, STATS_READY, GAMETIME_FALLBACK],
        is_exclusive: false,
        is_total: false,
        is_whole: false,
        row_key: Some("guid"),
    },
    FieldDomain {
        name: "totals",
        fields: &[
            "players",
            "weapons",
            "totals",
            "kills",
            "deaths",
            "headshots",
            "gibs",
            "damage*",
            "player_*",
            "players_*",
            "weapon_*",
            "total_*",
            "team_kills",
            "team_damage*",
            "self_kills",
            "revives",
            "accuracy",
            "xp",
        ],
        authority: &[FILENAME_TRIGGER],
        is_exclusive: false,
        is_total: true,
        is_whole: false,
        row_key: None,
    },
    FieldDomain {
        name: "engagements",
        fields: &[
            "engagements",
            "engagement_*",
            "tracks",
            "player_tracks",
            "heatmaps",
            "kill_heatmap",
            "movement_heatmap",
            "objective_focus",
            "trade_events",
            "support_summary",
            "crossfire*",
            "proximity_*",
        ],
        authority: &[PROXIMITY_FILE],
        is_exclusive: true,
        is_total: false,
        is_whole: false,
        row_key: None,
    },
];

/// Builds the policy with this window.
pub fn policy(window_minutes: u32) -> Policy {
    Policy {
        sources: SOURCE_TABLE,
        domains: DOMAIN_TABLE,
        order: &[STATS_READY, GAMETIME_FALLBACK, LUA_SPAWN_STATS, FILENAME_TRIGGER, PROXIMITY_FILE],
        window_seconds: i64::from(window_minutes) * 60,
        span_seconds: SPAN_SECONDS,
        tolerance_seconds: TOLERANCE_SECONDS,
        events_max: EVENTS_MAX,
        id_prefix: "rnd-",
        tables: TABLES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_one_domain_and_every_name_in_the_table_is_a_source() {
        let policy = policy(45);
        let mut fields: Vec<&str> =
            policy.domains.iter().flat_map(|domain| domain.fields.iter().copied()).collect();
        let all = fields.len();
        fields.sort_unstable();
        fields.dedup();
        assert_eq!(fields.len(), all);
        let named = policy.domains.iter().flat_map(|domain| domain.authority.iter());
        for name in named.chain(policy.order).chain(&SOURCES) {
            assert!(policy.source(name).is_some(), "{name}");
        }
        assert_eq!(policy.sources.len(), SOURCES.len());
        assert!(HARD_KEYS.iter().all(|(name, _)| SOURCES.contains(name)));
    }

    #[test]
    fn a_field_domain_by_name_wins_over_one_by_prefix() {
        let policy = policy(45);
        let domain = |field| policy.domain(field).map(|domain| domain.name);
        assert_eq!(domain("total_pause_seconds"), Some("timing"));
        assert_eq!(domain("total_damage"), Some("totals"));
        assert_eq!(domain("player_tracks"), Some("engagements"));
        assert_eq!(domain("player_count"), Some("totals"));
        assert_eq!(domain("surrender_team"), Some("outcome"));
        assert_eq!(domain("server_name"), None);
        assert_eq!(policy.authority("winner_team")[..2], [STATS_READY, GAMETIME_FALLBACK]);
        assert_eq!(policy.authority("engagements"), [PROXIMITY_FILE]);
        assert_eq!(policy.authority("server_name")[0], STATS_READY);
    }
}
