-- Marks the file of a closure as written.
UPDATE run_closure SET is_filed = 1 WHERE platform_run_id = $1;
