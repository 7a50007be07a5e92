-- Invalid envelopes after a number, oldest first.
SELECT number, event_id, payload, created_at, last_seen_at, seen_count, last_error
FROM invalid_envelope WHERE number > ?1 ORDER BY number LIMIT ?2;
