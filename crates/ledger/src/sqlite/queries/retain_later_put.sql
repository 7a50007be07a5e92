-- Defers the expiry check of an admission.
INSERT INTO retain_later (due_at, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
