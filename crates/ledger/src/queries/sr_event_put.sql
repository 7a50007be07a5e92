-- Inserts an event of a run, once.
INSERT INTO sr_run_event (run_id, event_id, line) VALUES ($1, $2, $3)
ON CONFLICT (run_id, event_id) DO NOTHING
