-- Inserts a document; existing ones never change.
INSERT INTO sr_run_document (run_id, kind, path, text, at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id, kind) DO NOTHING
