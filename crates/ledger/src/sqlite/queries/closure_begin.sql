-- Begins another attempt at closing a run.
INSERT INTO run_closure (platform_run_id, attempt, epoch, begun_at, begun_by, begun_why)
VALUES (?1, 1, ?2, ?3, ?4, ?5)
ON CONFLICT (platform_run_id) DO UPDATE SET
  attempt = attempt + 1, epoch = ?2, begun_at = ?3, begun_by = ?4, begun_why = ?5
RETURNING attempt;
