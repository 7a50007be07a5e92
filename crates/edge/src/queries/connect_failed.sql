-- Counts a failed connection as an attempt of the due rows, the oldest first, up to a limit. All
-- get the same due time, so they keep their order. NOT INDEXED: the index on due times would have
-- to be read completely and sorted.
UPDATE event_outbox
SET attempt_count = attempt_count + 1, last_error = ?2, next_attempt_at = ?3
WHERE rowid IN (
  SELECT rowid FROM event_outbox NOT INDEXED
  WHERE next_attempt_at <= ?1 ORDER BY rowid LIMIT ?4
);
