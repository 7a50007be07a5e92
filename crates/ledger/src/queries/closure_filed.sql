-- The file of a closure is there.
UPDATE run_closure SET is_filed = 1 WHERE platform_run_id = $1;
