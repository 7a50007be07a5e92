-- The run of an equivalence key.
SELECT run_id, intent_fingerprint FROM sr_run_equivalence WHERE run_equivalence_key = $1
