-- Inserts an event into the inbox. An existing row is foreign and is not touched.
INSERT INTO event_inbox (rowid, event_id, status, received_at, last_updated_at, payload)
VALUES (?4, ?1, 'received', ?2, ?2, ?3)
ON CONFLICT (event_id) DO NOTHING;
