-- The closure of a run.
SELECT * FROM run_closure WHERE platform_run_id = $1 AND closed_at IS NOT NULL;
