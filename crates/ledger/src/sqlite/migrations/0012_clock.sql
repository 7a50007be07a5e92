-- Operators' confirmations of a clock ahead of trusted time, after which retention resumes (see
-- docs/operations.md). Never removed.
CREATE TABLE clock_confirmation (
  id           INTEGER PRIMARY KEY,
  confirmed_at INTEGER NOT NULL,     -- what the clock showed
  trusted_at   INTEGER NOT NULL,     -- trusted time before that
  principal    TEXT NOT NULL,
  reason       TEXT
);

-- The quota of refusals counts their rows too, not only their bodies as before.
UPDATE refusal_quota SET bytes = bytes + rows * 320;
