-- Since a state is only turned to once, its time never moves.
UPDATE sr_run SET state = $2, reason_code = $3, turned_at = $4 WHERE run_id = $1
