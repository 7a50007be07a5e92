-- Events of a run, in order.
SELECT event_id, line FROM sr_run_event WHERE run_id = $1 ORDER BY n
