-- Outbox table, with the columns of the listener's outbox. One file per door and producer, so that
-- the ids of two producers behind one agent cannot collide. Times are RFC 3339 with milliseconds,
-- UTC, which sort as text. The index returns due rows in the order of due time, then rowid.
CREATE TABLE IF NOT EXISTS event_outbox (
  event_id TEXT PRIMARY KEY,
  payload_json TEXT NOT NULL,
  created_at TEXT NOT NULL,
  next_attempt_at TEXT NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  last_error TEXT
);
CREATE INDEX IF NOT EXISTS idx_event_outbox_next_attempt_at ON event_outbox(next_attempt_at);

-- Envelopes that failed the agent's validation: NACKed, and stored until an operator retries or
-- deletes them. A separate table, because they may lack an id and are never sent unchanged.
-- AUTOINCREMENT: numbers are never reused, so a number always means the same envelope.
CREATE TABLE IF NOT EXISTS invalid_envelope (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id TEXT,
  payload BLOB NOT NULL,
  payload_sha256 TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL,
  last_seen_at TEXT NOT NULL,
  seen_count INTEGER NOT NULL DEFAULT 1,
  last_error TEXT NOT NULL
);
