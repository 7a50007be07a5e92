-- An event comes into the inbox. A row that is there already is somebody's, whatever it says.
INSERT INTO event_inbox (rowid, event_id, status, received_at, last_updated_at, payload)
VALUES (?4, ?1, 'received', ?2, ?2, ?3)
ON CONFLICT (event_id) DO NOTHING;
