-- The first schema: admissions in arrival order, bodies, sightings of copies, the key index,
-- projected documents. Times are milliseconds since the Unix epoch, UTC.

-- Single values: the tag of the ledger, the last assigned seq, the progress of the key index.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;

-- Each start of a gate is an epoch, whose number its admissions carry. This distinguishes the work
-- of dead gates from that of live ones.
CREATE TABLE gate (
  epoch      INTEGER PRIMARY KEY,
  owner      TEXT NOT NULL,
  started_at INTEGER NOT NULL
);

-- Admissions: one row per verdict with content, in ledger order.
CREATE TABLE admission (
  seq         INTEGER PRIMARY KEY,  -- the place; receipt id = rcp-<tag>-<seq>
  epoch       INTEGER NOT NULL,     -- which start of which gate admitted it
  door        TEXT NOT NULL,
  principal   TEXT NOT NULL,
  verdict     TEXT NOT NULL,        -- fresh, revision, conflict, refused
  key         BLOB,                 -- 32 bytes; a refused submission claims none
  digest      BLOB NOT NULL,        -- 32 bytes
  received_at INTEGER NOT NULL,
  attempt     INTEGER,              -- the producer's own count, where the wire carries one
  first       INTEGER,              -- the admission that first claimed the key
  code        TEXT,                 -- why it was refused
  message     TEXT,
  facts       TEXT NOT NULL         -- the contract's part of the receipt, JSON
);

-- Indexes only for lookups by content, so that the hot path only appends.
CREATE INDEX admission_again ON admission (key, seq) WHERE verdict IN ('revision', 'conflict');
CREATE INDEX admission_refused ON admission (digest, seq) WHERE verdict = 'refused';
CREATE INDEX admission_quarantine ON admission (seq) WHERE verdict IN ('conflict', 'refused');

-- Raw bodies, stored separately from the facts because they are large and retention removes them
-- first.
CREATE TABLE body (
  seq   INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
);

-- Sightings: one narrow row per copy of an admission or of a stored refusal.
CREATE TABLE sighting (
  seq         INTEGER PRIMARY KEY,
  admission   INTEGER NOT NULL,     -- what it is a copy of
  received_at INTEGER NOT NULL,
  attempt     INTEGER,
  other       INTEGER               -- the conflict row that holds the other content of this copy
);
CREATE INDEX sighting_of ON sighting (admission, seq);

-- The admission that claimed each key. UNIQUE on the full key: a violation stops the gate.
CREATE TABLE key_index (
  key BLOB PRIMARY KEY,
  seq INTEGER NOT NULL
) WITHOUT ROWID;

-- Keys that are not merged into key_index yet, in arrival order; narrow, because a start reads it.
CREATE TABLE key_log (
  seq INTEGER PRIMARY KEY,
  key BLOB NOT NULL
);

-- Documents of projections, changed only in the commit of the event that changes them.
CREATE TABLE document (
  projection TEXT NOT NULL,
  entity     TEXT NOT NULL,
  seq        INTEGER NOT NULL,      -- the admission that changed it last
  text       TEXT NOT NULL,         -- JSON
  PRIMARY KEY (projection, entity)
) WITHOUT ROWID;

-- Totals of stored refusals, so that the quota needs no counting of rows.
CREATE TABLE refusal_quota (
  door      TEXT NOT NULL,
  principal TEXT NOT NULL,
  rows      INTEGER NOT NULL,
  bytes     INTEGER NOT NULL,
  PRIMARY KEY (door, principal)
) WITHOUT ROWID;

-- The current receipt: an admission with the totals of its sightings.
CREATE VIEW receipt AS
SELECT a.seq, a.door, a.principal, a.verdict, a.key, a.digest, a.received_at, a.attempt, a.first,
       a.code, a.message, a.facts,
       (SELECT count(*) FROM sighting s WHERE s.admission = a.seq) AS duplicate_count,
       coalesce((SELECT max(s.received_at) FROM sighting s WHERE s.admission = a.seq),
                a.received_at) AS last_seen_at,
       coalesce((SELECT s.attempt FROM sighting s WHERE s.admission = a.seq
                 ORDER BY s.seq DESC LIMIT 1), a.attempt) AS last_attempt
FROM admission a;

-- Receipts of the pixel-control contract, with the column names of its readers.
CREATE VIEW pixel_receipts AS
SELECT json_extract(facts, '$.dedupe_key')      AS dedupe_key,
       principal                                AS dedupe_scope,
       json_extract(facts, '$.idempotency_key') AS idempotency_key,
       json_extract(facts, '$.event_id')        AS event_id,
       json_extract(facts, '$.event_name')      AS event_name,
       json_extract(facts, '$.schema_version')  AS schema_version,
       strftime('%Y-%m-%dT%H:%M:%SZ', received_at / 1000, 'unixepoch')  AS first_seen_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', last_seen_at / 1000, 'unixepoch') AS last_seen_at,
       duplicate_count,
       last_attempt                             AS last_transport_attempt,
       CASE verdict WHEN 'refused' THEN 'rejected' ELSE 'processed' END AS status
FROM receipt
WHERE door = 'pixel-control' AND verdict IN ('fresh', 'refused');
