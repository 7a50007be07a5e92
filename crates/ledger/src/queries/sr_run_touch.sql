-- Increments the version of a run, which outdates its files.
UPDATE sr_run SET version = version + 1 WHERE run_id = $1
