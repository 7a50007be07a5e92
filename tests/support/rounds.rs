//! Sample game rounds: the artifacts each source sends, and requests to the rounds door.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::http::{Client, HttpResponse};

/// Path of the rounds door; each source posts to a path below it.
pub(crate) const ROUNDS: &str = "/v1/rounds";

/// A sample round. As in the reference, servers write local time (Europe/Ljubljana) and the stats file
/// is written three seconds after the end.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) map: String,
    pub(crate) number: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Timestamp of the stats file, `YYYY-MM-DD-HHMMSS`.
    pub(crate) stamp: String,
}

impl Round {
    /// The round of the published test vectors: supply, second half, 11 February 2026.
    pub(crate) fn reference() -> Self {
        Self {
            map: "supply".to_owned(),
            number: 2,
            start: 1_770_843_143,
            end: 1_770_843_722,
            stamp: "2026-02-11-220205".to_owned(),
        }
    }

    /// The `n`th of many rounds, 15 minutes apart, on one of ten maps.
    pub(crate) fn nth(n: u32) -> Self {
        // Midnight of 1 February 2026 in Ljubljana.
        const MIDNIGHT: i64 = 1_769_900_400;
        let end = MIDNIGHT + i64::from(n) * 900 + 600;
        let (day, second) = ((end - MIDNIGHT) / 86_400 + 1, (end - MIDNIGHT) % 86_400 + 3);
        assert!(day <= 28, "round {n} is after February");
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        Self {
            map: format!("map_{}", n % 10),
            number: 1 + n % 2,
            start: end - 500,
            end,
            stamp: format!("2026-02-{day:02}-{hour:02}{minute:02}{second:02}"),
        }
    }

    /// The same round, `days` days later.
    pub(crate) fn later(&self, days: i64) -> Self {
        let (date, time) = self.stamp.rsplit_once('-').unwrap();
        let (month, day) = date.rsplit_once('-').unwrap();
        let day = day.parse::<i64>().unwrap() + days;
        let (start, end) = (self.start + days * 86_400, self.end + days * 86_400);
        Self { start, end, stamp: format!("{month}-{day:02}-{time}"), ..self.clone() }
    }

    /// Name and content of the stats file.
    pub(crate) fn stats(&self) -> (String, String) {
        self.stats_with(1, &[("AAAA1111", "alpha", 10), ("BBBB2222", "bravo", 7)])
    }

    /// [`Self::stats`] with this winner and these players.
    pub(crate) fn stats_with(
        &self,
        winner: u32,
        players: &[(&str, &str, u32)],
    ) -> (String, String) {
        let Self { map, number, stamp, .. } = self;
        let name = format!("{stamp}-{map}-round-{number}.txt");
        let mut text = format!("^a#^7test server\\{map}\\legacy3\\1\\1\\{winner}\\20:00\\9:39\n");
        for (guid, player, kills) in players {
            // The mask 256 is one weapon, with its five numbers.
            text.push_str(&format!("{guid}\\^7{player}\\1\\1\\256 40 100 {kills} 3 5\t"));
            let extended = ["1200", "800", "10", "0", "0", "0", "42.5", "12", "7", "3"];
            text.push_str(&extended.join("\t"));
            text.push('\n');
        }
        (name, text)
    }

    /// Webhook message that the game server sends at the end of the round.
    pub(crate) fn ready(&self) -> Value {
        self.ready_with(2, 1)
    }

    /// [`Self::ready`] with this winner and number of pauses.
    pub(crate) fn ready_with(&self, winner: u32, pauses: u32) -> Value {
        let fields = [
            ("Map", self.map.clone()),
            ("Round", self.number.to_string()),
            ("Winner", winner.to_string()),
            ("Defender", "1".to_owned()),
            ("Lua_Playtime", format!("{} sec", self.end - self.start)),
            ("Lua_Timelimit", "20 min".to_owned()),
            ("Lua_Pauses", format!("{pauses} ({} sec)", pauses * 30)),
            ("Lua_EndReason", "objective".to_owned()),
            ("Lua_Warmup", "60 sec".to_owned()),
            ("Lua_WarmupStart", (self.start - 60).to_string()),
            ("Lua_RoundStart", self.start.to_string()),
            ("Lua_RoundEnd", self.end.to_string()),
            ("Lua_AxisScore", "1".to_owned()),
            ("Lua_AlliesScore", "1".to_owned()),
            ("Axis_JSON", r#"[{"guid":"AAAA1111","name":"alpha"}]"#.to_owned()),
            ("Allies_JSON", r#"[{"guid":"BBBB2222","name":"bravo"}]"#.to_owned()),
        ];
        let fields: Vec<Value> =
            fields.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        json!({
            "username": "ET:Legacy Stats",
            "content": "STATS_READY",
            "embeds": [{
                "title": "Round Complete",
                "fields": fields,
                "footer": { "text": "Slomix Lua Webhook v1.6.0" },
            }],
        })
    }

    /// Name and content of the gametime file, which repeats the webhook message.
    pub(crate) fn gametime(&self) -> (String, String) {
        self.gametime_with(&[("AAAA1111", "alpha", 5), ("BBBB2222", "bravo", 6)])
    }

    /// [`Self::gametime`] with these players and their spawn counts.
    pub(crate) fn gametime_with(&self, spawns: &[(&str, &str, u32)]) -> (String, String) {
        let spawn_stats: Vec<Value> = spawns
            .iter()
            .map(|(guid, name, spawns)| {
                json!({
                    "guid": guid, "name": name, "spawns": spawns, "deaths": spawns - 1,
                    "dead_seconds": 60, "avg_respawn": 12, "max_respawn": 20,
                })
            })
            .collect();
        let name = format!("gametime-{}-R{}-{}.json", self.map, self.number, self.end);
        let body = json!({
            "meta": {
                "map": self.map,
                "round": self.number,
                "round_start_unix": self.start,
                "round_end_unix": self.end,
                "actual_duration_seconds": self.end - self.start,
                "warmup_seconds": 60,
                "pause_seconds": 30,
                "pause_count": 1,
                "server_ip": "127.0.0.1",
                "server_port": "27960",
                "match_id": self.end.to_string(),
                "spawn_stats": spawn_stats,
            },
            "payload": self.ready(),
        });
        (name, body.to_string())
    }

    /// Name and content of the proximity tracker's file, with `engagements` engagements.
    pub(crate) fn proximity(&self, engagements: u32) -> (String, String) {
        let Self { map, number, stamp, start, end } = self;
        let name = format!("{stamp}-{map}-round-{number}_engagements.txt");
        let mut text = format!(
            "# PROXIMITY_TRACKER_V4\n# map={map}\n# round={number}\n# crossfire_window=1000\n\
             # escape_time=5000\n# escape_distance=300\n# position_sample_interval=500\n\
             # round_start_unix={start}\n# round_end_unix={end}\n# ENGAGEMENTS\n"
        );
        for n in 1..=engagements {
            text.push_str(&format!(
                "{n};{};{};2000;AAAA1111;alpha;axis;killed;55;BBBB2222;bravo;1;0;0;100;200;0;110;210;0;\
                 300;0;0;BBBB2222,bravo,allies,0,2000,1,55,1,11\n",
                n * 1_000,
                n * 1_000 + 2_000
            ));
        }
        text.push_str("# PLAYER_TRACKS\n");
        text.push_str("AAAA1111;alpha;axis;soldier;1000;9000;900;17;0,1,2,3\n");
        text.push_str("BBBB2222;bravo;allies;medic;1500;9500;950;17;0,1,2,3\n");
        text.push_str("# KILL_HEATMAP\n1;2;3;1\n# MOVEMENT_HEATMAP\n1;2;30;2;1\n");
        text.push_str("# OBJECTIVE_FOCUS\nAAAA1111;alpha;axis;dynamite;250.5;40\n");
        (name, text)
    }

    /// Request body of a source.
    pub(crate) fn post(&self, source: &str) -> Value {
        match source {
            "filename_trigger" => file(self.stats()),
            "stats_ready" => self.ready(),
            "gametime_fallback" => file(self.gametime()),
            "proximity_file" => file(self.proximity(3)),
            other => panic!("{other} has no artifact"),
        }
    }
}

/// The four sources that have artifacts of their own.
pub(crate) const SOURCES: [&str; 4] =
    ["filename_trigger", "stats_ready", "gametime_fallback", "proximity_file"];

/// Request body for a file.
pub(crate) fn file((name, content): (String, String)) -> Value {
    json!({ "filename": name, "content": content })
}

/// Writes an artifact file into a folder; returns its path.
pub(crate) fn write_artifact(folder: &Path, (name, content): (String, String)) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Posts the body of a source.
pub(crate) fn post_source(client: &mut Client, source: &str, body: &Value) -> HttpResponse {
    let path = format!("{ROUNDS}/{source}");
    client.send("POST", &path, &[], body.to_string().as_bytes()).expect("response from the gate")
}

/// Posts the body of a source and returns the reply; panics unless the status is 200.
pub(crate) fn post_source_ok(client: &mut Client, source: &str, body: &Value) -> Value {
    let response = post_source(client, source, body);
    let reply = response.json();
    assert_eq!(response.status, 200, "{source}: {reply}");
    reply
}

/// Returns the first page of rounds.
pub(crate) fn rounds(client: &mut Client) -> Vec<Value> {
    client.get(ROUNDS)["rounds"].as_array().expect("a list of rounds").clone()
}

/// Returns one round in full.
pub(crate) fn round(client: &mut Client, id: &str) -> Value {
    client.get(&format!("{ROUNDS}/{id}"))
}

/// Row counts of every table and totals of the heatmaps, which must not change on a repeated delivery.
pub(crate) fn row_counts(data: &Path) -> Vec<(String, i64)> {
    const TABLES: [&str; 15] = [
        "record",
        "record_event",
        "record_told",
        "record_field",
        "record_history",
        "lua_round_teams",
        "lua_spawn_stats",
        "combat_engagement",
        "player_track",
        "proximity_objective_focus",
        "proximity_kill_heatmap",
        "proximity_movement_heatmap",
        "rounds",
        "player_comprehensive_stats",
        "weapon_comprehensive_stats",
    ];
    let count = |query: &str| number(data, query);
    let mut found: Vec<(String, i64)> = TABLES
        .iter()
        .map(|table| ((*table).to_owned(), count(&format!("SELECT count(*) FROM {table}"))))
        .collect();
    for (view, column) in
        [("map_kill_heatmap", "axis_kills"), ("map_movement_heatmap", "traversal")]
    {
        let query = format!("SELECT coalesce(sum({column}), 0) FROM {view}");
        found.push((format!("{view}.{column}"), count(&query)));
    }
    found
}

/// Returns one number from the ledger.
pub(crate) fn number(data: &Path, query: &str) -> i64 {
    super::sql::query_one(data, query)
}
