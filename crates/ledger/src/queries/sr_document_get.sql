-- The document of a kind.
SELECT kind, path, text FROM sr_run_document WHERE run_id = $1 AND kind = $2
