-- Why nothing is sent at all, where a person looks first: at the oldest row. It was not attempted,
-- so it keeps its turn.
UPDATE event_outbox SET last_error = ?1
WHERE rowid = (SELECT rowid FROM event_outbox ORDER BY next_attempt_at, rowid LIMIT 1);
