-- There is a connection again: rows that waited for one take their turn before those that came later.
UPDATE event_outbox SET next_attempt_at = created_at
WHERE next_attempt_at = ?1 AND created_at < next_attempt_at;
