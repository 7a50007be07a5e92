-- Counts a later request with a known key.
UPDATE sr_run_equivalence SET last_seen_at = CASE WHEN $2 > last_seen_at THEN $2 ELSE last_seen_at END WHERE run_equivalence_key = $1
