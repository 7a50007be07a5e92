-- Defers the expiry check of an admission.
INSERT INTO retain_later (due_at, seq) SELECT * FROM unnest($1::bigint[], $2::bigint[])
ON CONFLICT DO NOTHING;
