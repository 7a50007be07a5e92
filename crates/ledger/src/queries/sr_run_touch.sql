-- Copies made before are out of date.
UPDATE sr_run SET version = version + 1 WHERE run_id = $1
