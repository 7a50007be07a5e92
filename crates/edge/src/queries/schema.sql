-- The columns of the listener's outbox. One file per door and producer, so that two producers
-- behind one agent never swallow each other's ids. Times are RFC 3339 with milliseconds, UTC, which
-- sort as text. The index gives what is due in the order of its times, and of its rows within one.
CREATE TABLE IF NOT EXISTS event_outbox (
  event_id TEXT PRIMARY KEY,
  payload_json TEXT NOT NULL,
  created_at TEXT NOT NULL,
  next_attempt_at TEXT NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  last_error TEXT
);
CREATE INDEX IF NOT EXISTS idx_event_outbox_next_attempt_at ON event_outbox(next_attempt_at);

-- Envelopes that failed the vet of the agent: answered with a NACK, and kept until a person retries
-- or deletes them. A table of their own, because they may lack an id and are never sent as they are.
-- Numbers are not used again, so that one a person has read never names another envelope.
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
