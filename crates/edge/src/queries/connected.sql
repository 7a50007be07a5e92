-- Makes the rows due that waited for a connection; they precede rows stored later.
UPDATE event_outbox SET next_attempt_at = created_at
WHERE next_attempt_at = ?1 AND created_at < next_attempt_at;
