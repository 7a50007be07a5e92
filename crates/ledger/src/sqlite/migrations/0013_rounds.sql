-- The map becomes part of the key of proximity rows: two maps may start at the same second on two
-- servers. SQLite cannot change the key of a table, so each table is recreated with its rows. It is
-- not renamed, because foreign views that name it would prevent that; foreign indexes and triggers
-- on it are lost. The views with the names of weapons and players follow below.

CREATE TEMP TABLE kept_rows AS SELECT * FROM combat_engagement;
DROP TABLE combat_engagement;
CREATE TABLE combat_engagement (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  engagement_id    INTEGER NOT NULL,
  map_name         TEXT NOT NULL,   -- empty where the file names none
  data             TEXT NOT NULL,   -- the engagement as the tracker sent it, JSON
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, map_name, engagement_id)
);
CREATE INDEX combat_engagement_event ON combat_engagement (event);
INSERT INTO combat_engagement
  (session_date, round_number, round_start_unix, engagement_id, map_name, data, captured_at, round_id, event, owner)
SELECT session_date, round_number, round_start_unix, engagement_id, coalesce(map_name, ''), data, captured_at, round_id, event, owner
FROM kept_rows;
DROP TABLE temp.kept_rows;

CREATE TEMP TABLE kept_rows AS SELECT * FROM player_track;
DROP TABLE player_track;
CREATE TABLE player_track (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  player_guid      TEXT NOT NULL,
  spawn_time_ms    INTEGER NOT NULL,
  player_name      TEXT,
  map_name         TEXT NOT NULL,   -- empty where the file names none
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, map_name, player_guid, spawn_time_ms)
);
CREATE INDEX player_track_event ON player_track (event);
INSERT INTO player_track
  (session_date, round_number, round_start_unix, player_guid, spawn_time_ms, player_name, map_name, data, captured_at, round_id, event, owner)
SELECT session_date, round_number, round_start_unix, player_guid, spawn_time_ms, player_name, coalesce(map_name, ''), data, captured_at, round_id, event, owner
FROM kept_rows;
DROP TABLE temp.kept_rows;

CREATE TEMP TABLE kept_rows AS SELECT * FROM proximity_objective_focus;
DROP TABLE proximity_objective_focus;
CREATE TABLE proximity_objective_focus (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  player_guid      TEXT NOT NULL,
  player_name      TEXT,
  map_name         TEXT NOT NULL,   -- empty where the file names none
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, map_name, player_guid)
);
CREATE INDEX proximity_objective_focus_event ON proximity_objective_focus (event);
INSERT INTO proximity_objective_focus
  (session_date, round_number, round_start_unix, player_guid, player_name, map_name, data, captured_at, round_id, event, owner)
SELECT session_date, round_number, round_start_unix, player_guid, player_name, coalesce(map_name, ''), data, captured_at, round_id, event, owner
FROM kept_rows;
DROP TABLE temp.kept_rows;

CREATE TEMP TABLE kept_rows AS SELECT * FROM proximity_kill_heatmap;
DROP TABLE proximity_kill_heatmap;
CREATE TABLE proximity_kill_heatmap (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  grid_x           INTEGER NOT NULL,
  grid_y           INTEGER NOT NULL,
  map_name         TEXT NOT NULL,   -- empty where the file names none
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, map_name, grid_x, grid_y)
);
CREATE INDEX proximity_kill_heatmap_event ON proximity_kill_heatmap (event);
INSERT INTO proximity_kill_heatmap
  (session_date, round_number, round_start_unix, grid_x, grid_y, map_name, data, captured_at, round_id, event, owner)
SELECT session_date, round_number, round_start_unix, grid_x, grid_y, coalesce(map_name, ''), data, captured_at, round_id, event, owner
FROM kept_rows;
DROP TABLE temp.kept_rows;

CREATE TEMP TABLE kept_rows AS SELECT * FROM proximity_movement_heatmap;
DROP TABLE proximity_movement_heatmap;
CREATE TABLE proximity_movement_heatmap (
  session_date     TEXT NOT NULL,
  round_number     INTEGER NOT NULL,
  round_start_unix INTEGER NOT NULL,
  grid_x           INTEGER NOT NULL,
  grid_y           INTEGER NOT NULL,
  map_name         TEXT NOT NULL,   -- empty where the file names none
  data             TEXT NOT NULL,
  captured_at      INTEGER NOT NULL,
  round_id         TEXT,
  event            INTEGER NOT NULL,
  owner            TEXT NOT NULL,
  UNIQUE (session_date, round_number, round_start_unix, map_name, grid_x, grid_y)
);
CREATE INDEX proximity_movement_heatmap_event ON proximity_movement_heatmap (event);
INSERT INTO proximity_movement_heatmap
  (session_date, round_number, round_start_unix, grid_x, grid_y, map_name, data, captured_at, round_id, event, owner)
SELECT session_date, round_number, round_start_unix, grid_x, grid_y, coalesce(map_name, ''), data, captured_at, round_id, event, owner
FROM kept_rows;
DROP TABLE temp.kept_rows;

-- Raw names in addition to those without colour codes, where an event has them.
DROP VIEW player_comprehensive_stats;
CREATE VIEW player_comprehensive_stats AS
SELECT f.record_id AS round_id,
       json_extract(p.value, '$.guid')      AS player_guid,
       json_extract(p.value, '$.name')      AS player_name,
       json_extract(p.value, '$.team')      AS team,
       json_extract(p.value, '$.kills')     AS kills,
       json_extract(p.value, '$.deaths')    AS deaths,
       json_extract(p.value, '$.headshots') AS headshots,
       p.value                              AS data,
       coalesce(json_extract(p.value, '$.raw_name'), json_extract(p.value, '$.name')) AS raw_name
FROM record_field f, json_each(f.value) p WHERE f.name = 'players';

-- The bits of the mask in a stats file are the weapons of ET:Legacy, in its order; a bit without a
-- name is shown as its number.
DROP VIEW weapon_comprehensive_stats;
CREATE VIEW weapon_comprehensive_stats AS
SELECT f.record_id AS round_id,
       json_extract(p.value, '$.guid')      AS player_guid,
       CASE json_extract(w.value, '$.weapon')
            WHEN 0 THEN 'WS_KNIFE' WHEN 1 THEN 'WS_KNIFE_KBAR'
            WHEN 2 THEN 'WS_LUGER' WHEN 3 THEN 'WS_COLT'
            WHEN 4 THEN 'WS_MP40' WHEN 5 THEN 'WS_THOMPSON'
            WHEN 6 THEN 'WS_STEN' WHEN 7 THEN 'WS_FG42'
            WHEN 8 THEN 'WS_PANZERFAUST' WHEN 9 THEN 'WS_BAZOOKA'
            WHEN 10 THEN 'WS_FLAMETHROWER' WHEN 11 THEN 'WS_GRENADE'
            WHEN 12 THEN 'WS_MORTAR' WHEN 13 THEN 'WS_MORTAR2'
            WHEN 14 THEN 'WS_DYNAMITE' WHEN 15 THEN 'WS_AIRSTRIKE'
            WHEN 16 THEN 'WS_ARTILLERY' WHEN 17 THEN 'WS_SATCHEL'
            WHEN 18 THEN 'WS_GRENADELAUNCHER' WHEN 19 THEN 'WS_LANDMINE'
            WHEN 20 THEN 'WS_MG42' WHEN 21 THEN 'WS_BROWNING'
            WHEN 22 THEN 'WS_CARBINE' WHEN 23 THEN 'WS_KAR98'
            WHEN 24 THEN 'WS_GARAND' WHEN 25 THEN 'WS_K43'
            WHEN 26 THEN 'WS_MP34' WHEN 27 THEN 'WS_SYRINGE'
            ELSE CAST(json_extract(w.value, '$.weapon') AS TEXT) END AS weapon_name,
       json_extract(w.value, '$.hits')      AS hits,
       json_extract(w.value, '$.shots')     AS shots,
       json_extract(w.value, '$.kills')     AS kills,
       json_extract(w.value, '$.deaths')    AS deaths,
       json_extract(w.value, '$.headshots') AS headshots,
       json_extract(w.value, '$.weapon')    AS weapon
FROM record_field f, json_each(f.value) p, json_each(json_extract(p.value, '$.weapons')) w
WHERE f.name = 'players';
