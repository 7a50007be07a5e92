-- Scenario runs: their equivalence keys, leases and documents. Only the scenario runner writes
-- here. Times are milliseconds since the Unix epoch, UTC.

CREATE TABLE sr_run_equivalence (
  run_equivalence_key TEXT PRIMARY KEY,
  run_id              TEXT NOT NULL UNIQUE,
  intent_fingerprint  TEXT NOT NULL,
  first_seen_at       INTEGER NOT NULL,
  last_seen_at        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sr_run_leases (
  run_id      TEXT PRIMARY KEY,     -- or reemit:<run>:<kind>
  owner_id    TEXT NOT NULL,
  lease_token TEXT NOT NULL,
  expires_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sr_run (
  run_id          TEXT PRIMARY KEY,
  platform_run_id TEXT NOT NULL,
  request         TEXT NOT NULL,    -- the first request, JSON
  state           TEXT NOT NULL,    -- OPEN, PLANNED, EXECUTING, WAITING_EVIDENCE, READY, FAILED, QUARANTINED
  reason_code     TEXT,
  version         INTEGER NOT NULL, -- counts changes
  shown           INTEGER NOT NULL DEFAULT 0, -- the version that its files show
  opened_at       INTEGER NOT NULL,
  turned_at       INTEGER NOT NULL  -- since when it stands so
) WITHOUT ROWID;

-- Unfinished runs, which are few.
CREATE INDEX sr_run_unfinished ON sr_run (run_id)
  WHERE shown < version OR state NOT IN ('READY', 'FAILED', 'QUARANTINED');

-- Plan, facts and signal: immutable. Their files are copies.
CREATE TABLE sr_run_document (
  run_id TEXT NOT NULL,
  kind   TEXT NOT NULL,
  path   TEXT NOT NULL,
  text   TEXT NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (run_id, kind)
) WITHOUT ROWID;

-- Events of a run: append-only, each event once.
CREATE TABLE sr_run_event (
  n        INTEGER PRIMARY KEY,
  run_id   TEXT NOT NULL,
  event_id TEXT NOT NULL,
  line     TEXT NOT NULL,
  UNIQUE (run_id, event_id)
);

-- Publications of a run on the control bus. In flight is committed before the first byte is sent;
-- an unknown outcome stays unknown until an operator publishes again.
CREATE TABLE sr_publication (
  run_id     TEXT NOT NULL,
  attempt    INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  kind       TEXT NOT NULL,         -- READY, READY_REEMIT, TERMINAL_REEMIT
  state      TEXT NOT NULL,         -- in_flight, published, not_written, unknown
  evidence   TEXT,
  at         INTEGER NOT NULL,
  PRIMARY KEY (run_id, attempt)
) WITHOUT ROWID;
