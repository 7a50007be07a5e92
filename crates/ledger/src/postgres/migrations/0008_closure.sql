-- Closing of runs: the current attempt, and the closure once the run is closed; both stored in the
-- commit that changes the state of the run. Times are milliseconds since the Unix epoch, UTC.

CREATE TABLE run_closure (
  platform_run_id TEXT COLLATE "C" PRIMARY KEY,
  attempt         BIGINT NOT NULL,  -- counts beginnings; only the last one can end it
  epoch           BIGINT NOT NULL,  -- the start of the gate that began it
  begun_at        BIGINT NOT NULL,
  begun_by        TEXT COLLATE "C" NOT NULL,     -- the operator
  begun_why       TEXT COLLATE "C",
  closed_at       BIGINT,           -- nothing as long as the run is not closed
  path            TEXT COLLATE "C",              -- where the file of the closure is
  text            TEXT COLLATE "C",              -- the closure, JSON
  is_filed        BIGINT NOT NULL DEFAULT 0 -- its file is on stable storage
);

-- Run reports read the receipts of one run in the order of their numbers. New entries are at the
-- end, so this index is cheap.
CREATE INDEX issued_run ON issued (run, n) WHERE kind = 'receipt';
