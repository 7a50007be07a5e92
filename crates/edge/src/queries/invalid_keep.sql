-- Stores an invalid envelope; a repeated one only increments its count.
INSERT INTO invalid_envelope
  (event_id, payload, payload_sha256, created_at, last_seen_at, last_error)
VALUES (?1, ?2, ?3, ?4, ?4, ?5)
ON CONFLICT (payload_sha256) DO UPDATE SET
  last_seen_at = excluded.last_seen_at,
  seen_count = seen_count + 1,
  last_error = excluded.last_error;
