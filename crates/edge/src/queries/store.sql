-- Stores a row, due at once. A known id stores nothing; find.sql then returns the existing row.
INSERT INTO event_outbox (event_id, payload_json, created_at, next_attempt_at)
VALUES (?1, ?2, ?3, ?3)
ON CONFLICT (event_id) DO NOTHING;
