-- A connection that could not be made is an attempt of the rows that were due, the oldest first and
-- at most so many. All of them wait for the same time, so they keep their order. Not by the index of
-- times: it would have to be read as a whole and sorted.
UPDATE event_outbox
SET attempt_count = attempt_count + 1, last_error = ?2, next_attempt_at = ?3
WHERE rowid IN (
  SELECT rowid FROM event_outbox NOT INDEXED
  WHERE next_attempt_at <= ?1 ORDER BY rowid LIMIT ?4
);
