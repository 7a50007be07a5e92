-- Changes the state of a run. Each state is entered once, so its time never changes.
UPDATE sr_run SET state = $2, reason_code = $3, turned_at = $4 WHERE run_id = $1
