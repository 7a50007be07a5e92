-- Runs by name, after $1.
SELECT * FROM run WHERE platform_run_id > $1 ORDER BY platform_run_id LIMIT $2;
