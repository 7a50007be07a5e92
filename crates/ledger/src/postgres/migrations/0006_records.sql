-- Records: entities merged from several sources, in the commit of every event.
-- Times called *_at are milliseconds since the Unix epoch, event_time is in seconds.

-- Events of the sources: one row per admission at a door with records. Narrow, because every new
-- event reads its neighbours; the fields of the events are in a separate table.
CREATE TABLE record_event (
  seq         BIGINT PRIMARY KEY,  -- the admission
  door        TEXT COLLATE "C" NOT NULL,
  source      TEXT COLLATE "C" NOT NULL,
  grp         TEXT COLLATE "C" NOT NULL,        -- the group: for rounds the map; empty if unknown
  number      BIGINT,              -- which entity of the group, corrected where it has to be
  event_time  BIGINT,              -- the best time there is
  hard_key    TEXT COLLATE "C",                 -- what names it among the events of its family of sources
  received_at BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,     -- when it, or a copy of it, was last received
  state       TEXT COLLATE "C" NOT NULL,
  link_status TEXT COLLATE "C" NOT NULL,
  reason_code TEXT COLLATE "C" NOT NULL,
  confidence  TEXT COLLATE "C" NOT NULL,
  record_id   TEXT COLLATE "C",
  drift       TEXT COLLATE "C",                 -- why its rows are not in the tables below
  head        TEXT COLLATE "C" NOT NULL,        -- all that names it, JSON
  link        TEXT COLLATE "C" NOT NULL         -- all that was decided about it, JSON
);
CREATE INDEX record_event_near ON record_event (door, grp, event_time);
CREATE INDEX record_event_key ON record_event (door, hard_key) WHERE hard_key IS NOT NULL;
CREATE INDEX record_event_of ON record_event (record_id, seq) WHERE record_id IS NOT NULL;
CREATE INDEX record_event_open ON record_event (door, seq)
  WHERE link_status <> 'linked_round_id' OR drift IS NOT NULL;
CREATE INDEX record_event_received ON record_event (door, received_at);

-- Fields of the events, as JSON objects.
CREATE TABLE record_told (
  seq    BIGINT PRIMARY KEY,
  fields TEXT COLLATE "C" NOT NULL
);

-- Current records.
CREATE TABLE record (
  record_id    TEXT COLLATE "C" PRIMARY KEY,
  door         TEXT COLLATE "C" NOT NULL,
  grp          TEXT COLLATE "C" NOT NULL,
  number       BIGINT NOT NULL,
  date         TEXT COLLATE "C",                -- by the clock of the source that opened it
  time         TEXT COLLATE "C",
  event_time   BIGINT,
  state        TEXT COLLATE "C" NOT NULL,
  revision     BIGINT NOT NULL,    -- 1, 2, 3 … with every change of its content
  opened_at    BIGINT NOT NULL,
  changed_at   BIGINT NOT NULL,
  digest       BYTEA NOT NULL,       -- of its content, to detect changes
  fingerprints TEXT COLLATE "C" NOT NULL        -- {kind: [value, …]}
);
-- Lists start with the newest record; records without a time are last.
CREATE INDEX record_time ON record (door, coalesce(event_time, 0), record_id);
CREATE INDEX record_group ON record (door, grp, event_time);
CREATE INDEX record_date ON record (door, date, event_time);

-- Fields of records, each with its value, source and event.
CREATE TABLE record_field (
  record_id TEXT COLLATE "C" NOT NULL,
  name      TEXT COLLATE "C" NOT NULL,
  value     TEXT COLLATE "C" NOT NULL,          -- JSON
  source    TEXT COLLATE "C" NOT NULL,
  event     BIGINT NOT NULL,
  PRIMARY KEY (record_id, name)
);

-- History of all events; append-only.
CREATE TABLE record_history (
  seq               BIGINT NOT NULL,
  n                 BIGINT NOT NULL,
  at                BIGINT NOT NULL,
  attempt           BIGINT NOT NULL,
  from_state        TEXT COLLATE "C" NOT NULL,
  to_state          TEXT COLLATE "C" NOT NULL,
  source            TEXT COLLATE "C" NOT NULL,
  fingerprint_kind  TEXT COLLATE "C",
  round_fingerprint TEXT COLLATE "C",
  link_status       TEXT COLLATE "C" NOT NULL,
  confidence        TEXT COLLATE "C" NOT NULL,
  reason_code       TEXT COLLATE "C",
  record_id         TEXT COLLATE "C",
  PRIMARY KEY (seq, n)
);

-- The tables below have rows derived from the events of the rounds door, with the names and unique
-- keys of their readers. event is the admission that wrote the row last; owner identifies the
-- events it may come from. Numbers of a source may have a fraction.

CREATE TABLE lua_round_teams (
  match_id                TEXT COLLATE "C" NOT NULL,
  round_number            BIGINT NOT NULL,
  map_name                TEXT COLLATE "C",
  round_start_unix        NUMERIC,
  round_end_unix          NUMERIC,
  actual_duration_seconds NUMERIC,
  total_pause_seconds     NUMERIC,
  pause_count             NUMERIC,
  end_reason              TEXT COLLATE "C",
  winner_team             NUMERIC,
  defender_team           NUMERIC,
  time_limit_minutes      NUMERIC,
  lua_warmup_seconds      NUMERIC,
  lua_warmup_start_unix   NUMERIC,
  lua_pause_events        TEXT COLLATE "C",
  surrender_team          NUMERIC,
  surrender_caller_guid   TEXT COLLATE "C",
  surrender_caller_name   TEXT COLLATE "C",
  axis_score              NUMERIC,
  allies_score            NUMERIC,
  axis_players            TEXT COLLATE "C",
  allies_players          TEXT COLLATE "C",
  lua_version             TEXT COLLATE "C",
  captured_at             BIGINT NOT NULL,
  round_id                TEXT COLLATE "C",
  event                   BIGINT NOT NULL,
  owner                   TEXT COLLATE "C" NOT NULL,
  UNIQUE (match_id, round_number)
);
CREATE INDEX lua_round_teams_event ON lua_round_teams (event);

CREATE TABLE lua_spawn_stats (
  match_id            TEXT COLLATE "C" NOT NULL,
  round_number        BIGINT NOT NULL,
  player_guid         TEXT COLLATE "C" NOT NULL,
  player_name         TEXT COLLATE "C",
  spawn_count         NUMERIC,
  death_count         NUMERIC,
  dead_seconds        NUMERIC,
  avg_respawn_seconds NUMERIC,
  max_respawn_seconds NUMERIC,
  map_name            TEXT COLLATE "C",
  round_end_unix      NUMERIC,
  captured_at         BIGINT NOT NULL,
  round_id            TEXT COLLATE "C",
  event               BIGINT NOT NULL,
  owner               TEXT COLLATE "C" NOT NULL,
  UNIQUE (match_id, round_number, player_guid)
);
CREATE INDEX lua_spawn_stats_event ON lua_spawn_stats (event);

CREATE TABLE combat_engagement (
  session_date     TEXT COLLATE "C" NOT NULL,
  round_number     BIGINT NOT NULL,
  round_start_unix BIGINT NOT NULL,
  engagement_id    NUMERIC NOT NULL,
  map_name         TEXT COLLATE "C",
  data             TEXT COLLATE "C" NOT NULL,   -- the engagement as the tracker sent it, JSON
  captured_at      BIGINT NOT NULL,
  round_id         TEXT COLLATE "C",
  event            BIGINT NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, engagement_id)
);
CREATE INDEX combat_engagement_event ON combat_engagement (event);

CREATE TABLE player_track (
  session_date     TEXT COLLATE "C" NOT NULL,
  round_number     BIGINT NOT NULL,
  round_start_unix BIGINT NOT NULL,
  player_guid      TEXT COLLATE "C" NOT NULL,
  spawn_time_ms    NUMERIC NOT NULL,
  player_name      TEXT COLLATE "C",
  map_name         TEXT COLLATE "C",
  data             TEXT COLLATE "C" NOT NULL,
  captured_at      BIGINT NOT NULL,
  round_id         TEXT COLLATE "C",
  event            BIGINT NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, player_guid, spawn_time_ms)
);
CREATE INDEX player_track_event ON player_track (event);

CREATE TABLE proximity_objective_focus (
  session_date     TEXT COLLATE "C" NOT NULL,
  round_number     BIGINT NOT NULL,
  round_start_unix BIGINT NOT NULL,
  player_guid      TEXT COLLATE "C" NOT NULL,
  player_name      TEXT COLLATE "C",
  map_name         TEXT COLLATE "C",
  data             TEXT COLLATE "C" NOT NULL,
  captured_at      BIGINT NOT NULL,
  round_id         TEXT COLLATE "C",
  event            BIGINT NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, player_guid)
);
CREATE INDEX proximity_objective_focus_event ON proximity_objective_focus (event);

CREATE TABLE proximity_kill_heatmap (
  session_date     TEXT COLLATE "C" NOT NULL,
  round_number     BIGINT NOT NULL,
  round_start_unix BIGINT NOT NULL,
  grid_x           NUMERIC NOT NULL,
  grid_y           NUMERIC NOT NULL,
  map_name         TEXT COLLATE "C",
  data             TEXT COLLATE "C" NOT NULL,
  captured_at      BIGINT NOT NULL,
  round_id         TEXT COLLATE "C",
  event            BIGINT NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, grid_x, grid_y)
);
CREATE INDEX proximity_kill_heatmap_event ON proximity_kill_heatmap (event);

CREATE TABLE proximity_movement_heatmap (
  session_date     TEXT COLLATE "C" NOT NULL,
  round_number     BIGINT NOT NULL,
  round_start_unix BIGINT NOT NULL,
  grid_x           NUMERIC NOT NULL,
  grid_y           NUMERIC NOT NULL,
  map_name         TEXT COLLATE "C",
  data             TEXT COLLATE "C" NOT NULL,
  captured_at      BIGINT NOT NULL,
  round_id         TEXT COLLATE "C",
  event            BIGINT NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, grid_x, grid_y)
);
CREATE INDEX proximity_movement_heatmap_event ON proximity_movement_heatmap (event);

-- Rounds, one row per record, with the column names of their readers.
CREATE VIEW rounds AS
SELECT r.record_id AS id,
       replace((SELECT admit_json(value) #>> '{}' FROM record_field f
                WHERE f.record_id = r.record_id AND f.name = 'filename'), '.txt', '') AS match_id,
       r.number AS round_number,
       r.date AS round_date,
       r.time AS round_time,
       r.grp AS map_name,
       (SELECT admit_json(value) #>> '{}' FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'time_limit') AS time_limit,
       (SELECT admit_json(value) #>> '{}' FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'actual_time') AS actual_time,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'defender_team') AS defender_team,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'winner_team') AS winner_team,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_start_unix') AS round_start_unix,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_end_unix') AS round_end_unix,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'actual_duration_seconds') AS actual_duration_seconds,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'total_pause_seconds') AS total_pause_seconds,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'pause_count') AS pause_count,
       (SELECT admit_json(value) #>> '{}' FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'end_reason') AS end_reason,
       (SELECT admit_json(value) #>> '{}' FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'score_confidence') AS score_confidence,
       (SELECT admit_json(value) #>> '{}' FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_stopwatch_state') AS round_stopwatch_state,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'time_to_beat_seconds') AS time_to_beat_seconds,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'next_timelimit_minutes') AS next_timelimit_minutes,
       (SELECT admit_number(admit_json(value)) FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'player_count') AS player_count,
       r.state,
       r.revision,
       to_char(to_timestamp(r.opened_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM record r WHERE r.door = 'rounds';

-- Statistics of players and their weapons, from the stats files.
CREATE VIEW player_comprehensive_stats AS
SELECT f.record_id AS round_id,
       p.value ->> 'guid'      AS player_guid,
       p.value ->> 'name'      AS player_name,
       admit_number(p.value -> 'team')      AS team,
       admit_number(p.value -> 'kills')     AS kills,
       admit_number(p.value -> 'deaths')    AS deaths,
       admit_number(p.value -> 'headshots') AS headshots,
       p.value::text                        AS data
FROM record_field f, json_array_elements(admit_list(admit_json(f.value))) p WHERE f.name = 'players';

CREATE VIEW weapon_comprehensive_stats AS
SELECT f.record_id AS round_id,
       p.value ->> 'guid'      AS player_guid,
       w.value ->> 'weapon'    AS weapon_name,
       admit_number(w.value -> 'hits')      AS hits,
       admit_number(w.value -> 'shots')     AS shots,
       admit_number(w.value -> 'kills')     AS kills,
       admit_number(w.value -> 'deaths')    AS deaths,
       admit_number(w.value -> 'headshots') AS headshots
FROM record_field f, json_array_elements(admit_list(admit_json(f.value))) p,
     json_array_elements(admit_list(p.value -> 'weapons')) w
WHERE f.name = 'players';

-- Totals of a map, computed from the rows of each file when read, so that importing a file again
-- does not change them.
CREATE VIEW map_kill_heatmap AS
SELECT map_name, grid_x, grid_y,
       sum(admit_number(admit_json(data) -> 'axis_kills'))   AS axis_kills,
       sum(admit_number(admit_json(data) -> 'allies_kills')) AS allies_kills
FROM proximity_kill_heatmap GROUP BY map_name, grid_x, grid_y;

CREATE VIEW map_movement_heatmap AS
SELECT map_name, grid_x, grid_y,
       sum(admit_number(admit_json(data) -> 'traversal')) AS traversal,
       sum(admit_number(admit_json(data) -> 'combat'))    AS combat,
       sum(admit_number(admit_json(data) -> 'escape'))    AS escapes
FROM proximity_movement_heatmap GROUP BY map_name, grid_x, grid_y;
