-- Effects: actions of admissions outside the ledger. The row is inserted in the commit of its
-- admission; every later step is a separate commit. Times are milliseconds since the Unix epoch,
-- UTC.

CREATE TABLE effect (
  seq          BIGINT PRIMARY KEY,  -- the admission it belongs to
  kind         TEXT COLLATE "C" NOT NULL,        -- who knows how to do it: gateway, bus
  plan         TEXT COLLATE "C" NOT NULL,        -- what is to be done, JSON
  state        TEXT COLLATE "C" NOT NULL,        -- withheld, intended, in_flight, done, refused, ambiguous
  attempt      BIGINT NOT NULL,     -- 0 before the first
  epoch        BIGINT,              -- the start of a gate that has it in flight, is about to, or lost it
  evidence     TEXT COLLATE "C",                 -- what a settled state rests on, JSON
  reply_status BIGINT,              -- the reply when the first attempt was settled;
  reply        BYTEA,                 -- copies of the event get it again, byte for byte
  changed_at   BIGINT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Most effects are done, and never looked up by state.
CREATE INDEX effect_state ON effect (state, seq) WHERE state <> 'done';

-- Lost effects without documents: few, and only for a short time.
CREATE INDEX effect_unsaid ON effect (seq) WHERE state = 'ambiguous' AND epoch IS NOT NULL;

-- History of all steps; append-only.
CREATE TABLE effect_history (
  seq      BIGINT NOT NULL,
  n        BIGINT NOT NULL,         -- 1, 2, 3 … for each effect
  at       BIGINT NOT NULL,
  attempt  BIGINT NOT NULL,
  what     TEXT COLLATE "C" NOT NULL,            -- the state that was reached, or evidence
  epoch    BIGINT NOT NULL,         -- the start of the gate that wrote it
  who      TEXT COLLATE "C",                     -- the operator, where there is one
  why      TEXT COLLATE "C",
  evidence TEXT COLLATE "C",                     -- JSON
  PRIMARY KEY (seq, n)
);

-- Intents, with the column names of their readers.
CREATE VIEW intents AS
SELECT a.seq,
       admit_json(a.facts) ->> 'idempotency_key' AS idempotency_key,
       admit_json(a.facts) ->> 'intent_id'       AS intent_id,
       admit_json(a.facts) ->> 'source'          AS source,
       admit_json(a.facts) ->> 'schema_version'  AS schema_version,
       a.principal,
       to_char(to_timestamp(a.received_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS received_at,
       CASE e.state WHEN 'done' THEN 'executed' WHEN 'refused' THEN 'failed'
                    WHEN 'ambiguous' THEN 'failed' WHEN 'withheld' THEN 'planned'
                    WHEN 'intended' THEN 'planned' WHEN 'in_flight' THEN 'planned'
                    ELSE admit_json(a.facts) ->> 'status' END AS status,
       e.state AS effect_state,
       e.attempt
FROM admission a LEFT JOIN effect e ON e.seq = a.seq
WHERE a.door = 'intents' AND a.verdict = 'fresh';
