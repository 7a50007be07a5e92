-- The row stored under an id.
SELECT rowid, payload_json, created_at FROM event_outbox WHERE event_id = ?1;
