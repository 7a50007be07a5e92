-- Runs in a final state, whose files never change again.
SELECT run_id FROM sr_run
WHERE run_id > $1 AND state IN ('READY', 'FAILED', 'QUARANTINED')
ORDER BY run_id LIMIT $2
