-- Runs being closed since before this start, which has the newest epoch.
SELECT r.platform_run_id FROM run r LEFT JOIN run_closure c ON c.platform_run_id = r.platform_run_id
WHERE r.state = 'closing' AND (c.epoch IS NULL OR c.epoch < (SELECT max(epoch) FROM gate))
ORDER BY r.platform_run_id;
