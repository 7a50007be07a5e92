-- Publications of a run, in order.
SELECT message_id, kind, attempt, state, evidence, at FROM sr_publication
WHERE run_id = $1 ORDER BY attempt
