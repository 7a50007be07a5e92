-- Records: entities merged from several sources, in the commit of every event.
-- Times called *_at are milliseconds since the Unix epoch, event_time is in seconds.

-- Events of the sources: one row per admission at a door with records. Narrow, because every new
-- event reads its neighbours; the fields of the events are in a separate table.
CREATE TABLE record_event (
  seq         INTEGER PRIMARY KEY,  -- the admission
  door        TEXT NOT NULL,
  source      TEXT NOT NULL,
  grp         TEXT NOT NULL,        -- the group: for rounds the map; empty if unknown
  number      INTEGER,              -- which entity of the group, corrected where it has to be
  event_time  INTEGER,              -- the best time there is
  hard_key    TEXT,                 -- what names it among the events of its family of sources
  received_at INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,     -- when it, or a copy of it, was last received
  state       TEXT NOT NULL,
  link_status TEXT NOT NULL,
  reason_code TEXT NOT NULL,
  confidence  TEXT NOT NULL,
  record_id   TEXT,
  drift       TEXT,                 -- why its rows are not in the tables below
  head        TEXT NOT NULL,        -- all that names it, JSON
  link        TEXT NOT NULL         -- all that was decided about it, JSON
);
CREATE INDEX record_event_near ON record_event (door, grp, event_time);
CREATE INDEX record_event_key ON record_event (door, hard_key) WHERE hard_key IS NOT NULL;
CREATE INDEX record_event_of ON record_event (record_id, seq) WHERE record_id IS NOT NULL;
CREATE INDEX record_event_open ON record_event (door, seq)
  WHERE link_status <> 'linked_round_id' OR drift IS NOT NULL;
CREATE INDEX record_event_received ON record_event (door, received_at);

-- Fields of the events, as JSON objects.
CREATE TABLE record_told (
  seq    INTEGER PRIMARY KEY,
  fields TEXT NOT NULL
);

-- Current records.
CREATE TABLE record (
  record_id    TEXT PRIMARY KEY,
  door         TEXT NOT NULL,
  grp          TEXT NOT NULL,
  number       INTEGER NOT NULL,
  date         TEXT,                -- by the clock of the source that opened it
  time         TEXT,
  event_time   INTEGER,
  state        TEXT NOT NULL,
  revision     INTEGER NOT NULL,    -- 1, 2, 3 … with every change of its content
  opened_at    INTEGER NOT NULL,
  changed_at   INTEGER NOT NULL,
  digest       BLOB NOT NULL,       -- of its content, to detect changes
  fingerprints TEXT NOT NULL        -- {kind: [value, …]}
);
-- Lists start with the newest record; records without a time are last.
CREATE INDEX record_time ON record (door, coalesce(event_time, 0), record_id);
CREATE INDEX record_group ON record (door, grp, event_time);
CREATE INDEX record_date ON record (door, date, event_time);

-- Fields of records, each with its value, source and event.
CREATE TABLE record_field (
  record_id TEXT NOT NULL,
  name      TEXT NOT NULL,
  value     TEXT NOT NULL,          -- JSON
  source    TEXT NOT NULL,
  event     INTEGER NOT NULL,
  PRIMARY KEY (record_id, name)
);

-- History of all events; append-only.
CREATE TABLE record_history (
  seq               INTEGER NOT NULL,
  n                 INTEGER NOT NULL,
  at                INTEGER NOT NULL,
  attempt           INTEGER NOT NULL,
  from_state        TEXT NOT NULL,
  to_state          TEXT NOT NULL,
  source            TEXT NOT NULL,
  fingerprint_kind  TEXT,
  round_fingerprint TEXT,
  link_status       TEXT NOT NULL,
  confidence        TEXT NOT NULL,
  reason_code       TEXT,
  record_id         TEXT,
  PRIMARY KEY (seq, n)
) WITHOUT ROWID;

-- The tables below have rows derived from the events of the rounds door, with the names and unique
-- keys of their readers. event is the admission that wrote the row last; owner identifies the
-- events it may come from.

CREATE TABLE lua_round_teams (
  match_id                TEXT NOT NULL,
  round_number            INTEGER NOT NULL,
  map_name                TEXT,
  round_start_unix        INTEGER,
  round_end_unix          INTEGER,
  actual_duration_seconds INTEGER,
  total_pause_seconds     INTEGER,
  pause_count             INTEGER,
  end_reason              TEXT,
  winner_team             INTEGER,
  defender_team           INTEGER,
  time_limit_minutes      INTEGER,
  lua_warmup_seconds      INTEGER,
  lua_warmup_start_unix   INTEGER,
  lua_pause_events        TEXT,
  surrender_team          INTEGER,
  surrender_caller_guid   TEXT,
  surrender_caller_name   TEXT,
  axis_score              INTEGER,
  allies_score            INTEGER,
  axis_players            TEXT,
  allies_players          TEXT,
  lua_version             TEXT,
  captured_at             INTEGER NOT NULL,
  round_id                TEXT,
  event                   INTEGER NOT NULL,
  owner                   TEXT NOT NULL,
  UNIQUE (match_id, round_number)
);
CREATE INDEX lua_round_teams_event ON lua_round_teams (event);

CREATE TABLE lua_spawn_stats (
  match_id            TEXT NOT NULL,
  round_number        INTEGER NOT NULL,
  player_guid         TEXT NOT NULL,
  player_name         TEXT,
  spawn_count         INTEGER,
  death_count         INTEGER,
  dead_seconds        INTEGER,
  avg_respawn_seconds INTEGER,
  max_respawn_seconds INTEGER,
  map_name            TEXT,
  round_end_unix      INTEGER,
  captured_at         INTEGER NOT NULL,
  round_id            TEXT,
  event               INTEGER NOT NULL,
  owner               TEXT NOT NULL,
  UNIQUE (match_id, round_number, player_guid)
);
CREATE INDEX lua_spawn_stats_event ON lua_spawn_stats (event);

CREATE TABLE combat_engagement (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  engagement_id    INTEGER NOT NULL,
  map_name         TEXT,
  data             TEXT NOT NULL,   -- the engagement as the tracker sent it, JSON
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, engagement_id)
);
CREATE INDEX combat_engagement_event ON combat_engagement (event);

CREATE TABLE player_track (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  player_guid      TEXT NOT NULL,
  spawn_time_ms    INTEGER NOT NULL,
  player_name      TEXT,
  map_name         TEXT,
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, player_guid, spawn_time_ms)
);
CREATE INDEX player_track_event ON player_track (event);

CREATE TABLE proximity_objective_focus (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  player_guid      TEXT NOT NULL,
  player_name      TEXT,
  map_name         TEXT,
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, player_guid)
);
CREATE INDEX proximity_objective_focus_event ON proximity_objective_focus (event);

CREATE TABLE proximity_kill_heatmap (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  grid_x           INTEGER NOT NULL,
  grid_y           INTEGER NOT NULL,
  map_name         TEXT,
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, grid_x, grid_y)
);
CREATE INDEX proximity_kill_heatmap_event ON proximity_kill_heatmap (event);

CREATE TABLE proximity_movement_heatmap (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  grid_x           INTEGER NOT NULL,
  grid_y           INTEGER NOT NULL,
  map_name         TEXT,
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, grid_x, grid_y)
);
CREATE INDEX proximity_movement_heatmap_event ON proximity_movement_heatmap (event);

-- Rounds, one row per record, with the column names of their readers.
CREATE VIEW rounds AS
SELECT r.record_id AS id,
       replace((SELECT json_extract(value, '$') FROM record_field f
                WHERE f.record_id = r.record_id AND f.name = 'filename'), '.txt', '') AS match_id,
       r.number AS round_number,
       r.date AS round_date,
       r.time AS round_time,
       r.grp AS map_name,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'time_limit') AS time_limit,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'actual_time') AS actual_time,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'defender_team') AS defender_team,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'winner_team') AS winner_team,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_start_unix') AS round_start_unix,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_end_unix') AS round_end_unix,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'actual_duration_seconds') AS actual_duration_seconds,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'total_pause_seconds') AS total_pause_seconds,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'pause_count') AS pause_count,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'end_reason') AS end_reason,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'score_confidence') AS score_confidence,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'round_stopwatch_state') AS round_stopwatch_state,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'time_to_beat_seconds') AS time_to_beat_seconds,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'next_timelimit_minutes') AS next_timelimit_minutes,
       (SELECT json_extract(value, '$') FROM record_field f
        WHERE f.record_id = r.record_id AND f.name = 'player_count') AS player_count,
       r.state,
       r.revision,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_at / 1000.0, 'unixepoch') AS created_at
FROM record r WHERE r.door = 'rounds';

-- Statistics of players and their weapons, from the stats files.
CREATE VIEW player_comprehensive_stats AS
SELECT f.record_id AS round_id,
       json_extract(p.value, '$.guid')      AS player_guid,
       json_extract(p.value, '$.name')      AS player_name,
       json_extract(p.value, '$.team')      AS team,
       json_extract(p.value, '$.kills')     AS kills,
       json_extract(p.value, '$.deaths')    AS deaths,
       json_extract(p.value, '$.headshots') AS headshots,
       p.value                              AS data
FROM record_field f, json_each(f.value) p WHERE f.name = 'players';

CREATE VIEW weapon_comprehensive_stats AS
SELECT f.record_id AS round_id,
       json_extract(p.value, '$.guid')      AS player_guid,
       json_extract(w.value, '$.weapon')    AS weapon_name,
       json_extract(w.value, '$.hits')      AS hits,
       json_extract(w.value, '$.shots')     AS shots,
       json_extract(w.value, '$.kills')     AS kills,
       json_extract(w.value, '$.deaths')    AS deaths,
       json_extract(w.value, '$.headshots') AS headshots
FROM record_field f, json_each(f.value) p, json_each(json_extract(p.value, '$.weapons')) w
WHERE f.name = 'players';

-- Totals of a map, computed from the rows of each file when read, so that importing a file again
-- does not change them.
CREATE VIEW map_kill_heatmap AS
SELECT map_name, grid_x, grid_y,
       sum(json_extract(data, '$.axis_kills'))   AS axis_kills,
       sum(json_extract(data, '$.allies_kills')) AS allies_kills
FROM proximity_kill_heatmap GROUP BY map_name, grid_x, grid_y;

CREATE VIEW map_movement_heatmap AS
SELECT map_name, grid_x, grid_y,
       sum(json_extract(data, '$.traversal')) AS traversal,
       sum(json_extract(data, '$.combat'))    AS combat,
       sum(json_extract(data, '$.escape'))    AS escapes
FROM proximity_movement_heatmap GROUP BY map_name, grid_x, grid_y;
