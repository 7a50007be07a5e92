-- Runs that are not final, not published, or have outdated files. A READY run that is not published also
-- has outdated files, because they are marked current only after the attempt.
SELECT run_id FROM sr_run
WHERE run_id > $1 AND (shown < version OR state NOT IN ('READY', 'FAILED', 'QUARANTINED'))
ORDER BY run_id LIMIT $2
