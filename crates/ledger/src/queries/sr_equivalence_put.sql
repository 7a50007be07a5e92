-- Assigns a run to an equivalence key; the first request wins.
INSERT INTO sr_run_equivalence (run_equivalence_key, run_id, intent_fingerprint, first_seen_at, last_seen_at)
VALUES ($1, $2, $3, $4, $4)
