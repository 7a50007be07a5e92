-- The next due time.
SELECT min(next_attempt_at) FROM event_outbox WHERE next_attempt_at > ?1;
