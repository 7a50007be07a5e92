-- Begins another attempt at closing a run.
INSERT INTO run_closure AS c (platform_run_id, attempt, epoch, begun_at, begun_by, begun_why)
VALUES ($1, 1, $2, $3, $4, $5)
ON CONFLICT (platform_run_id) DO UPDATE SET
  attempt = c.attempt + 1, epoch = excluded.epoch, begun_at = excluded.begun_at,
  begun_by = excluded.begun_by, begun_why = excluded.begun_why
RETURNING attempt;
