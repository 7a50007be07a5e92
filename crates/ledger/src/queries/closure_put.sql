-- Stores the closure of a run, from its last attempt; only once.
UPDATE run_closure SET closed_at = $3, path = $4, text = $5
WHERE platform_run_id = $1 AND attempt = $2 AND closed_at IS NULL;
