-- Runs being closed by no live gate.
SELECT r.platform_run_id FROM run r LEFT JOIN run_closure c ON c.platform_run_id = r.platform_run_id
WHERE r.state = 'closing' AND NOT EXISTS (
  SELECT 1 FROM gate g WHERE g.epoch = c.epoch AND admit_lease_holds(g.alive_until, g.lease_ms))
ORDER BY r.platform_run_id;
