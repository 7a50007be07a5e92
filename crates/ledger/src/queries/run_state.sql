-- Whether a run takes events. The old state must be the expected one.
UPDATE run SET state = $3, changed_at = $4 WHERE platform_run_id = $1 AND state = $2;
