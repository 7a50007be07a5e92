-- The map becomes part of the key of proximity rows: two maps may start at the same second on two
-- servers. Only Admit's own key is replaced, under any name; other constraints stay.
DO $$
DECLARE
  made record;
BEGIN
  FOR made IN
    SELECT t.relname, c.conname, keys.rest
    FROM (VALUES
      ('combat_engagement', 'engagement_id'),
      ('player_track', 'player_guid, spawn_time_ms'),
      ('proximity_objective_focus', 'player_guid'),
      ('proximity_kill_heatmap', 'grid_x, grid_y'),
      ('proximity_movement_heatmap', 'grid_x, grid_y')) AS keys (name, rest)
    JOIN pg_class t ON t.relname = keys.name AND t.relnamespace = quote_ident(current_schema())::regnamespace
    JOIN pg_constraint c ON c.conrelid = t.oid AND c.contype = 'u'
     AND pg_get_constraintdef(c.oid)
         = 'UNIQUE (session_date, round_number, round_start_unix, ' || keys.rest || ')'
  LOOP
    EXECUTE format('UPDATE %I SET map_name = '''' WHERE map_name IS NULL', made.relname);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I, ALTER COLUMN map_name SET NOT NULL',
                   made.relname, made.conname);
    EXECUTE format('ALTER TABLE %I ADD UNIQUE (session_date, round_number, round_start_unix, map_name, '
                   || made.rest || ')', made.relname);
  END LOOP;
END $$;

-- Raw names in addition to those without colour codes, where an event has them.
CREATE OR REPLACE VIEW player_comprehensive_stats AS
SELECT f.record_id AS round_id,
       p.value ->> 'guid'      AS player_guid,
       p.value ->> 'name'      AS player_name,
       admit_number(p.value -> 'team')      AS team,
       admit_number(p.value -> 'kills')     AS kills,
       admit_number(p.value -> 'deaths')    AS deaths,
       admit_number(p.value -> 'headshots') AS headshots,
       p.value::text                        AS data,
       coalesce(p.value ->> 'raw_name', p.value ->> 'name') AS raw_name
FROM record_field f, json_array_elements(admit_list(admit_json(f.value))) p WHERE f.name = 'players';

-- The bits of the mask in a stats file are the weapons of ET:Legacy, in its order; a bit without a
-- name is shown as its number.
CREATE OR REPLACE VIEW weapon_comprehensive_stats AS
SELECT f.record_id AS round_id,
       p.value ->> 'guid'      AS player_guid,
       CASE w.value ->> 'weapon'
            WHEN '0' THEN 'WS_KNIFE' WHEN '1' THEN 'WS_KNIFE_KBAR'
            WHEN '2' THEN 'WS_LUGER' WHEN '3' THEN 'WS_COLT'
            WHEN '4' THEN 'WS_MP40' WHEN '5' THEN 'WS_THOMPSON'
            WHEN '6' THEN 'WS_STEN' WHEN '7' THEN 'WS_FG42'
            WHEN '8' THEN 'WS_PANZERFAUST' WHEN '9' THEN 'WS_BAZOOKA'
            WHEN '10' THEN 'WS_FLAMETHROWER' WHEN '11' THEN 'WS_GRENADE'
            WHEN '12' THEN 'WS_MORTAR' WHEN '13' THEN 'WS_MORTAR2'
            WHEN '14' THEN 'WS_DYNAMITE' WHEN '15' THEN 'WS_AIRSTRIKE'
            WHEN '16' THEN 'WS_ARTILLERY' WHEN '17' THEN 'WS_SATCHEL'
            WHEN '18' THEN 'WS_GRENADELAUNCHER' WHEN '19' THEN 'WS_LANDMINE'
            WHEN '20' THEN 'WS_MG42' WHEN '21' THEN 'WS_BROWNING'
            WHEN '22' THEN 'WS_CARBINE' WHEN '23' THEN 'WS_KAR98'
            WHEN '24' THEN 'WS_GARAND' WHEN '25' THEN 'WS_K43'
            WHEN '26' THEN 'WS_MP34' WHEN '27' THEN 'WS_SYRINGE'
            ELSE w.value ->> 'weapon' END AS weapon_name,
       admit_number(w.value -> 'hits')      AS hits,
       admit_number(w.value -> 'shots')     AS shots,
       admit_number(w.value -> 'kills')     AS kills,
       admit_number(w.value -> 'deaths')    AS deaths,
       admit_number(w.value -> 'headshots') AS headshots,
       admit_number(w.value -> 'weapon')    AS weapon
FROM record_field f, json_array_elements(admit_list(admit_json(f.value))) p,
     json_array_elements(admit_list(p.value -> 'weapons')) w
WHERE f.name = 'players';
