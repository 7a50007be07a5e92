-- A run with its equivalence key and intent.
SELECT r.run_id, e.run_equivalence_key, e.intent_fingerprint, r.platform_run_id, r.request, r.state,
       r.reason_code, r.version, r.shown, r.opened_at, r.turned_at
FROM sr_run r JOIN sr_run_equivalence e ON e.run_id = r.run_id
WHERE r.run_id = $1
