-- One run.
SELECT * FROM run WHERE platform_run_id = $1;
