-- Who vouched for a clock that was ahead of trusted time, so that retention goes on (see
-- docs/operations.md). A person's decision, so it is never removed.
CREATE TABLE clock_confirmation (
  id           INTEGER PRIMARY KEY,
  confirmed_at INTEGER NOT NULL,     -- what the clock showed
  trusted_at   INTEGER NOT NULL,     -- trusted time before that
  principal    TEXT NOT NULL,
  reason       TEXT
);

-- The quota of refusals counts their rows too; what was counted so far were bodies alone.
UPDATE refusal_quota SET bytes = bytes + rows * 320;
