-- Publications of records: each revision is published at most once without an operator, by the
-- rules of effects. Times are milliseconds since the Unix epoch.

-- The newest revision handed to the bus, or 0; and the time since which a newer one waits.
ALTER TABLE record ADD COLUMN offered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN unoffered_at BIGINT NOT NULL DEFAULT 0;
UPDATE record SET unoffered_at = changed_at;
CREATE INDEX record_unoffered ON record (door, unoffered_at)
  WHERE revision > offered AND state <> 'linked_round_id';

-- Revisions of records that were or will be handed to the bus.
CREATE TABLE record_publication (
  n             BIGINT PRIMARY KEY,               -- 1, 2, 3 … in ledger order
  door          TEXT COLLATE "C" NOT NULL,
  record_id     TEXT COLLATE "C" NOT NULL,
  revision      BIGINT NOT NULL,
  topic         TEXT COLLATE "C" NOT NULL,
  partition_key TEXT COLLATE "C" NOT NULL,
  dedupe_key    TEXT COLLATE "C" NOT NULL UNIQUE, -- the message can be found on the bus by it
  digest        BYTEA NOT NULL,                   -- of the message
  members       TEXT COLLATE "C" NOT NULL,        -- the events that go out with it, JSON
  state         TEXT COLLATE "C" NOT NULL,        -- in_flight, done, refused, ambiguous
  attempt       BIGINT NOT NULL,
  epoch         BIGINT,                           -- which start of which gate does it
  evidence      TEXT COLLATE "C",
  reason_code   TEXT COLLATE "C",                 -- why it is not known to have gone out
  begun_at      BIGINT NOT NULL,                  -- the present attempt
  changed_at    BIGINT NOT NULL,
  UNIQUE (record_id, revision)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX record_publication_open ON record_publication (door, n) WHERE state <> 'done';

-- History of publications; append-only.
CREATE TABLE record_publication_history (
  n        BIGINT NOT NULL,
  line     BIGINT NOT NULL,
  at       BIGINT NOT NULL,
  attempt  BIGINT NOT NULL,
  what     TEXT COLLATE "C" NOT NULL,
  epoch    BIGINT NOT NULL,
  who      TEXT COLLATE "C",
  why      TEXT COLLATE "C",
  evidence TEXT COLLATE "C",
  PRIMARY KEY (n, line)
);

-- Reads only the requested number of rows around a new event, in index order.
DROP INDEX record_event_near;
CREATE INDEX record_event_near ON record_event (door, grp, event_time, seq);

-- The reason for a missing link names the nearest event outside of the window that opens a record
-- with the same number. Without this index, that would scan every event of a large group.
CREATE INDEX record_event_number ON record_event (door, grp, number, source, event_time);

DROP VIEW rounds;
-- Rounds, one row per record, with the column names of their readers. The match id is the name of
-- the stats file, or the name it would have. published_revision is the newest published revision.
CREATE VIEW rounds AS
SELECT r.record_id AS id,
       coalesce(
         replace((SELECT admit_json(value) #>> '{}' FROM record_field f
                  WHERE f.record_id = r.record_id AND f.name = 'filename'), '.txt', ''),
         r.date || '-' || replace(r.time, ':', '') || '-' || r.grp || '-round-' || r.number,
         r.record_id) AS match_id,
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
       (SELECT max(p.revision) FROM record_publication p
        WHERE p.record_id = r.record_id AND p.state = 'done') AS published_revision,
       to_char(to_timestamp(r.opened_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM record r WHERE r.door = 'rounds';
