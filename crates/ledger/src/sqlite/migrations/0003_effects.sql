-- Effects: actions of admissions outside the ledger. The row is inserted in the commit of its
-- admission; every later step is a separate commit. Times are milliseconds since the Unix epoch,
-- UTC.

CREATE TABLE effect (
  seq          INTEGER PRIMARY KEY,  -- the admission it belongs to
  kind         TEXT NOT NULL,        -- who knows how to do it: gateway, bus
  plan         TEXT NOT NULL,        -- what is to be done, JSON
  state        TEXT NOT NULL,        -- withheld, intended, in_flight, done, refused, ambiguous
  attempt      INTEGER NOT NULL,     -- 0 before the first
  epoch        INTEGER,              -- which start of which gate has it in flight
  evidence     TEXT,                 -- what a settled state rests on, JSON
  reply_status INTEGER,              -- the reply when the first attempt was settled;
  reply        BLOB,                 -- copies of the event get it again, byte for byte
  changed_at   INTEGER NOT NULL
);

-- Most effects are done, and never looked up by state.
CREATE INDEX effect_state ON effect (state, seq) WHERE state <> 'done';

-- History of all steps; append-only.
CREATE TABLE effect_history (
  seq      INTEGER NOT NULL,
  n        INTEGER NOT NULL,         -- 1, 2, 3 … for each effect
  at       INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  what     TEXT NOT NULL,            -- the state that was reached, or evidence
  epoch    INTEGER NOT NULL,         -- the start of the gate that wrote it
  who      TEXT,                     -- the operator, where there is one
  why      TEXT,
  evidence TEXT,                     -- JSON
  PRIMARY KEY (seq, n)
) WITHOUT ROWID;

-- Intents, with the column names of their readers.
CREATE VIEW intents AS
SELECT a.seq,
       json_extract(a.facts, '$.idempotency_key') AS idempotency_key,
       json_extract(a.facts, '$.intent_id')       AS intent_id,
       json_extract(a.facts, '$.source')          AS source,
       json_extract(a.facts, '$.schema_version')  AS schema_version,
       a.principal,
       strftime('%Y-%m-%dT%H:%M:%fZ', a.received_at / 1000.0, 'unixepoch') AS received_at,
       CASE e.state WHEN 'done' THEN 'executed' WHEN 'refused' THEN 'failed'
                    WHEN 'ambiguous' THEN 'failed' WHEN 'withheld' THEN 'planned'
                    WHEN 'intended' THEN 'planned' WHEN 'in_flight' THEN 'planned'
                    ELSE json_extract(a.facts, '$.status') END AS status,
       e.state AS effect_state,
       e.attempt
FROM admission a LEFT JOIN effect e ON e.seq = a.seq
WHERE a.door = 'intents' AND a.verdict = 'fresh';
