-- Documents issued by a contract (receipts, quarantine records, governance notes) and their runs.
-- The text is stored in the commit of the decision; files are copies of it. Times are milliseconds
-- since the Unix epoch, UTC.

CREATE TABLE issued (
  n             INTEGER PRIMARY KEY, -- in the order they were kept
  kind          TEXT NOT NULL,       -- receipt, quarantine, governance
  run           TEXT NOT NULL,       -- the run its own event names; empty for what is in none
  id            TEXT NOT NULL,
  identity      TEXT NOT NULL,       -- what makes it this very document
  decision      TEXT NOT NULL,       -- in the contract's words: ADMIT, DUPLICATE, QUARANTINE
  reason        TEXT,
  seq           INTEGER NOT NULL,    -- the place of the delivery it is about
  of            INTEGER,             -- the admission it is about
  event_id      TEXT,
  event_type    TEXT,
  at            INTEGER NOT NULL,
  path          TEXT NOT NULL,       -- where its file is
  text          TEXT NOT NULL,       -- the document, JSON
  is_unwritten  INTEGER NOT NULL DEFAULT 0, -- its file could not be written
  superseded_by INTEGER,             -- the document that made it void
  released_how  TEXT,                -- dismissed, resubmitted, reconciled
  released_by   TEXT,
  released_why  TEXT,
  released_at   INTEGER
);

-- An id is unique per kind and run. The id comes first, for lookups.
CREATE UNIQUE INDEX issued_id ON issued (id, run, kind);
CREATE INDEX issued_of ON issued (of) WHERE of IS NOT NULL;
CREATE INDEX issued_quarantine ON issued (run, n) WHERE kind = 'quarantine';
CREATE INDEX issued_unwritten ON issued (n) WHERE is_unwritten <> 0;

-- A run exists once an envelope names it. Its counters are updated in the commits that they count.
CREATE TABLE run (
  platform_run_id TEXT PRIMARY KEY,
  state           TEXT NOT NULL,     -- open, closing, closed
  opened_at       INTEGER NOT NULL,
  changed_at      INTEGER NOT NULL,
  deliveries      INTEGER NOT NULL,  -- all deliveries, copies included
  in_flight       INTEGER NOT NULL,
  ambiguous       INTEGER NOT NULL,
  admit           INTEGER NOT NULL,  -- receipts by their decision
  duplicate       INTEGER NOT NULL,
  quarantine      INTEGER NOT NULL,
  superseded      INTEGER NOT NULL,  -- quarantines that do not count any more
  released        INTEGER NOT NULL
) WITHOUT ROWID;

-- State of the ingestion gate, with the column names of its readers.
CREATE VIEW ig_admissions AS
SELECT json_extract(a.facts, '$.dedupe_key')      AS dedupe_key,
       CASE e.state WHEN 'in_flight' THEN 'PUBLISH_IN_FLIGHT' WHEN 'done' THEN 'ADMITTED'
                    WHEN 'ambiguous' THEN 'PUBLISH_AMBIGUOUS' WHEN 'refused' THEN 'RELEASED'
                    END AS state,
       json_extract(a.facts, '$.envelope.platform_run_id') AS platform_run_id,
       json_extract(a.facts, '$.event_class')     AS event_class,
       json_extract(a.facts, '$.envelope.event_id') AS event_id,
       json_extract(a.facts, '$.payload_hash')    AS payload_hash,
       coalesce((SELECT i.path FROM issued i
                 WHERE i.of = a.seq AND i.kind = 'receipt' AND i.decision = 'ADMIT'), '')
                                                  AS receipt_ref,
       coalesce((SELECT max(i.is_unwritten) FROM issued i
                 WHERE i.of = a.seq AND i.kind = 'receipt' AND i.decision = 'ADMIT'), 0)
                                                  AS receipt_write_failed,
       json_extract(e.evidence, '$.admitted_at_utc')         AS admitted_at_utc,
       json_extract(e.evidence, '$.eb_ref.topic')            AS eb_topic,
       json_extract(e.evidence, '$.eb_ref.partition')        AS eb_partition,
       json_extract(e.evidence, '$.eb_ref.offset')           AS eb_offset,
       json_extract(e.evidence, '$.eb_ref.offset_kind')      AS eb_offset_kind,
       json_extract(e.evidence, '$.eb_ref.published_at_utc') AS eb_published_at_utc
FROM admission a JOIN effect e ON e.seq = a.seq
WHERE a.door = 'ingestion-gate' AND a.verdict = 'fresh' AND e.kind = 'bus';

CREATE VIEW ig_receipts AS
SELECT i.id                                        AS receipt_id,
       i.run                                       AS platform_run_id,
       i.event_id,
       i.event_type,
       json_extract(i.text, '$.dedupe_key')        AS dedupe_key,
       i.decision,
       json_extract(i.text, '$.eb_ref.topic')      AS eb_topic,
       json_extract(i.text, '$.eb_ref.partition')  AS eb_partition,
       json_extract(i.text, '$.eb_ref.offset')     AS eb_offset,
       json_extract(i.text, '$.eb_ref.offset_kind') AS eb_offset_kind,
       json_extract(i.text, '$.policy_rev.policy_id')      AS policy_id,
       json_extract(i.text, '$.policy_rev.revision')       AS policy_revision,
       json_extract(i.text, '$.policy_rev.content_digest') AS policy_digest,
       strftime('%Y-%m-%dT%H:%M:%f+00:00', i.at / 1000.0, 'unixepoch') AS created_at_utc,
       i.path                                      AS receipt_ref,
       json_extract(i.text, '$.pins')              AS pins_json,
       json_extract(i.text, '$.reason_codes')      AS reason_codes_json,
       json_extract(i.text, '$.evidence_refs')     AS evidence_refs_json
FROM issued i WHERE i.kind = 'receipt';

CREATE VIEW ig_quarantines AS
SELECT i.id                                        AS quarantine_id,
       i.event_id,
       i.decision,
       json_extract(i.text, '$.reason_codes')      AS reason_codes_json,
       json_extract(i.text, '$.policy_rev.policy_id')      AS policy_id,
       json_extract(i.text, '$.policy_rev.revision')       AS policy_revision,
       json_extract(i.text, '$.policy_rev.content_digest') AS policy_digest,
       strftime('%Y-%m-%dT%H:%M:%f+00:00', i.at / 1000.0, 'unixepoch') AS created_at_utc,
       i.path                                      AS evidence_ref,
       json_extract(i.text, '$.pins')              AS pins_json
FROM issued i WHERE i.kind = 'quarantine';
