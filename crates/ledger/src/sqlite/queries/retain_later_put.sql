-- To be looked at again.
INSERT INTO retain_later (due_at, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
