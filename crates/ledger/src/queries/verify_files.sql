-- Documents whose files are copies of ledger rows: closures and the immutable documents of scenario runs.
-- A run has few of them, so they are read at once.
SELECT 'closure' AS kind, platform_run_id AS run, path, text FROM run_closure
WHERE closed_at IS NOT NULL AND path IS NOT NULL AND text IS NOT NULL
UNION ALL
SELECT 'scenario', run_id, path, text FROM sr_run_document
ORDER BY 1, 2, 3;
