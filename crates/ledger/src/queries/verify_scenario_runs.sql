-- The scenario runs, by their ids.
SELECT run_id FROM sr_run ORDER BY run_id;
