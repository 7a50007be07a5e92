-- Upserts a projected document after this commit's events.
INSERT INTO document (projection, entity, seq, text) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (projection, entity) DO UPDATE SET seq = excluded.seq, text = excluded.text;
