-- Runs that are being closed, by nobody who is alive.
SELECT r.platform_run_id FROM run r LEFT JOIN run_closure c ON c.platform_run_id = r.platform_run_id
WHERE r.state = 'closing' AND NOT EXISTS (
  SELECT 1 FROM gate g WHERE g.epoch = c.epoch AND g.alive_until > clock_timestamp())
ORDER BY r.platform_run_id;
