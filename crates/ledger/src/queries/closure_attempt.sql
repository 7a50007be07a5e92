-- The last attempt at closing a run that is being closed.
SELECT c.attempt FROM run_closure c JOIN run r ON r.platform_run_id = c.platform_run_id
WHERE c.platform_run_id = $1 AND r.state = 'closing';
