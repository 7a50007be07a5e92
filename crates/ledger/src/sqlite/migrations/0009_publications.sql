-- Publications of records: each revision is published at most once without an operator, by the
-- rules of effects. Times are milliseconds since the Unix epoch.

-- The newest revision handed to the bus, or 0; and the time since which a newer one waits.
ALTER TABLE record ADD COLUMN offered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN unoffered_at INTEGER NOT NULL DEFAULT 0;
UPDATE record SET unoffered_at = changed_at;
CREATE INDEX record_unoffered ON record (door, unoffered_at)
  WHERE revision > offered AND state <> 'linked_round_id';

-- Revisions of records that were or will be handed to the bus.
CREATE TABLE record_publication (
  n             INTEGER PRIMARY KEY AUTOINCREMENT,
  door          TEXT NOT NULL,
  record_id     TEXT NOT NULL,
  revision      INTEGER NOT NULL,
  topic         TEXT NOT NULL,
  partition_key TEXT NOT NULL,
  dedupe_key    TEXT NOT NULL UNIQUE, -- the message can be found on the bus by it
  digest        BLOB NOT NULL,        -- of the message
  members       TEXT NOT NULL,        -- the events that go out with it, JSON
  state         TEXT NOT NULL,        -- in_flight, done, refused, ambiguous
  attempt       INTEGER NOT NULL,
  epoch         INTEGER,              -- the process that does it
  evidence      TEXT,
  reason_code   TEXT,                 -- why it is not known to have gone out
  begun_at      INTEGER NOT NULL,     -- the present attempt
  changed_at    INTEGER NOT NULL,
  UNIQUE (record_id, revision)
);
CREATE INDEX record_publication_open ON record_publication (door, n) WHERE state <> 'done';

-- History of publications; append-only.
CREATE TABLE record_publication_history (
  n        INTEGER NOT NULL,
  line     INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  what     TEXT NOT NULL,
  epoch    INTEGER NOT NULL,
  who      TEXT,
  why      TEXT,
  evidence TEXT,
  PRIMARY KEY (n, line)
) WITHOUT ROWID;

-- The reason for a missing link names the nearest event outside of the window that opens a record
-- with the same number. Without this index, that would scan every event of a large group.
CREATE INDEX record_event_number ON record_event (door, grp, number, source, event_time);

DROP VIEW rounds;
-- Rounds, one row per record, with the column names of their readers. The match id is the name of
-- the stats file, or the name it would have. published_revision is the newest published revision.
CREATE VIEW rounds AS
SELECT r.record_id AS id,
       coalesce(
         replace((SELECT json_extract(value, '$') FROM record_field f
                  WHERE f.record_id = r.record_id AND f.name = 'filename'), '.txt', ''),
         r.date || '-' || replace(r.time, ':', '') || '-' || r.grp || '-round-' || r.number,
         r.record_id) AS match_id,
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
       (SELECT max(p.revision) FROM record_publication p
        WHERE p.record_id = r.record_id AND p.state = 'done') AS published_revision,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_at / 1000.0, 'unixepoch') AS created_at
FROM record r WHERE r.door = 'rounds';
