-- Not final, or not published, or its files are out of date. What is ready and not published yet is always
-- out of date too: its files are only called up to date after the attempt.
SELECT run_id FROM sr_run
WHERE run_id > $1 AND (shown < version OR state NOT IN ('READY', 'FAILED', 'QUARANTINED'))
ORDER BY run_id LIMIT $2
