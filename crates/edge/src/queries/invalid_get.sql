-- One invalid envelope.
SELECT number, event_id, payload, created_at, last_seen_at, seen_count, last_error
FROM invalid_envelope WHERE number = ?1;
