-- Documents issued by a contract (receipts, quarantine records, governance notes) and their runs.
-- The text is stored in the commit of the decision; files are copies of it. Times are milliseconds
-- since the Unix epoch, UTC.

CREATE TABLE issued (
  n             BIGINT PRIMARY KEY, -- in the order they were kept
  kind          TEXT COLLATE "C" NOT NULL,       -- receipt, quarantine, governance
  run           TEXT COLLATE "C" NOT NULL,       -- the run its own event names; empty for what is in none
  id            TEXT COLLATE "C" NOT NULL,
  identity      TEXT COLLATE "C" NOT NULL,       -- what makes it this very document
  decision      TEXT COLLATE "C" NOT NULL,       -- in the contract's words: ADMIT, DUPLICATE, QUARANTINE
  reason        TEXT COLLATE "C",
  seq           BIGINT NOT NULL,    -- the place of the delivery it is about
  of            BIGINT,             -- the admission it is about
  event_id      TEXT COLLATE "C",
  event_type    TEXT COLLATE "C",
  at            BIGINT NOT NULL,
  path          TEXT COLLATE "C" NOT NULL,       -- where its file is
  text          TEXT COLLATE "C" NOT NULL,       -- the document, JSON
  is_unwritten  BIGINT NOT NULL DEFAULT 0, -- its file could not be written
  superseded_by BIGINT,             -- the document that made it void
  released_how  TEXT COLLATE "C",                -- dismissed, resubmitted, reconciled
  released_by   TEXT COLLATE "C",
  released_why  TEXT COLLATE "C",
  released_at   BIGINT,
  epoch         BIGINT NOT NULL DEFAULT 0 -- the start of the gate that issued it, and so writes its file
);

-- An id is unique per kind and run. The id comes first, for lookups.
CREATE UNIQUE INDEX issued_id ON issued (id, run, kind);
CREATE INDEX issued_of ON issued (of) WHERE of IS NOT NULL;
CREATE INDEX issued_quarantine ON issued (run, n) WHERE kind = 'quarantine';
CREATE INDEX issued_unwritten ON issued (n) WHERE is_unwritten <> 0;

-- A run exists once an envelope names it. Its counters are updated in the commits that they count.
CREATE TABLE run (
  platform_run_id TEXT COLLATE "C" PRIMARY KEY,
  state           TEXT COLLATE "C" NOT NULL,     -- open, closing, closed
  opened_at       BIGINT NOT NULL,
  changed_at      BIGINT NOT NULL,
  deliveries      BIGINT NOT NULL,  -- all deliveries, copies included
  in_flight       BIGINT NOT NULL,
  ambiguous       BIGINT NOT NULL,
  admit           BIGINT NOT NULL,  -- receipts by their decision
  duplicate       BIGINT NOT NULL,
  quarantine      BIGINT NOT NULL,
  superseded      BIGINT NOT NULL,  -- quarantines that do not count any more
  released        BIGINT NOT NULL
) WITH (fillfactor = 50);

-- State of the ingestion gate, with the column names of its readers.
CREATE VIEW ig_admissions AS
SELECT admit_json(a.facts) ->> 'dedupe_key'      AS dedupe_key,
       CASE e.state WHEN 'in_flight' THEN 'PUBLISH_IN_FLIGHT' WHEN 'done' THEN 'ADMITTED'
                    WHEN 'ambiguous' THEN 'PUBLISH_AMBIGUOUS' WHEN 'refused' THEN 'RELEASED'
                    END AS state,
       admit_json(a.facts) #>> '{envelope,platform_run_id}' AS platform_run_id,
       admit_json(a.facts) ->> 'event_class'     AS event_class,
       admit_json(a.facts) #>> '{envelope,event_id}' AS event_id,
       admit_json(a.facts) ->> 'payload_hash'    AS payload_hash,
       coalesce((SELECT i.path FROM issued i
                 WHERE i.of = a.seq AND i.kind = 'receipt' AND i.decision = 'ADMIT'), '')
                                                  AS receipt_ref,
       coalesce((SELECT max(i.is_unwritten) FROM issued i
                 WHERE i.of = a.seq AND i.kind = 'receipt' AND i.decision = 'ADMIT'), 0)
                                                  AS receipt_write_failed,
       admit_json(e.evidence) ->> 'admitted_at_utc'         AS admitted_at_utc,
       admit_json(e.evidence) #>> '{eb_ref,topic}'            AS eb_topic,
       admit_number(admit_json(e.evidence) #> '{eb_ref,partition}')        AS eb_partition,
       admit_json(e.evidence) #>> '{eb_ref,offset}'           AS eb_offset,
       admit_json(e.evidence) #>> '{eb_ref,offset_kind}'      AS eb_offset_kind,
       admit_json(e.evidence) #>> '{eb_ref,published_at_utc}' AS eb_published_at_utc
FROM admission a JOIN effect e ON e.seq = a.seq
WHERE a.door = 'ingestion-gate' AND a.verdict = 'fresh' AND e.kind = 'bus';

CREATE VIEW ig_receipts AS
SELECT i.id                                        AS receipt_id,
       i.run                                       AS platform_run_id,
       i.event_id,
       i.event_type,
       admit_json(i.text) ->> 'dedupe_key'        AS dedupe_key,
       i.decision,
       admit_json(i.text) #>> '{eb_ref,topic}'      AS eb_topic,
       admit_number(admit_json(i.text) #> '{eb_ref,partition}')  AS eb_partition,
       admit_json(i.text) #>> '{eb_ref,offset}'     AS eb_offset,
       admit_json(i.text) #>> '{eb_ref,offset_kind}' AS eb_offset_kind,
       admit_json(i.text) #>> '{policy_rev,policy_id}'      AS policy_id,
       admit_json(i.text) #>> '{policy_rev,revision}'       AS policy_revision,
       admit_json(i.text) #>> '{policy_rev,content_digest}' AS policy_digest,
       to_char(to_timestamp(i.at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"') AS created_at_utc,
       i.path                                      AS receipt_ref,
       admit_json(i.text) ->> 'pins'              AS pins_json,
       admit_json(i.text) ->> 'reason_codes'      AS reason_codes_json,
       admit_json(i.text) ->> 'evidence_refs'     AS evidence_refs_json
FROM issued i WHERE i.kind = 'receipt';

CREATE VIEW ig_quarantines AS
SELECT i.id                                        AS quarantine_id,
       i.event_id,
       i.decision,
       admit_json(i.text) ->> 'reason_codes'      AS reason_codes_json,
       admit_json(i.text) #>> '{policy_rev,policy_id}'      AS policy_id,
       admit_json(i.text) #>> '{policy_rev,revision}'       AS policy_revision,
       admit_json(i.text) #>> '{policy_rev,content_digest}' AS policy_digest,
       to_char(to_timestamp(i.at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"') AS created_at_utc,
       i.path                                      AS evidence_ref,
       admit_json(i.text) ->> 'pins'              AS pins_json
FROM issued i WHERE i.kind = 'quarantine';
