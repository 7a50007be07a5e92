-- Changes whether a run accepts events, if it is in the expected state.
UPDATE run SET state = $3, changed_at = $4 WHERE platform_run_id = $1 AND state = $2;
