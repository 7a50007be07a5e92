-- Inserts a run. Its platform run never changes.
INSERT INTO sr_run (run_id, platform_run_id, request, state, version, opened_at, turned_at)
VALUES ($1, $2, $3, $4, 1, $5, $5)
