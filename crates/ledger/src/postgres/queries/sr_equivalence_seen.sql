-- A later request under a known key.
UPDATE sr_run_equivalence SET last_seen_at = greatest(last_seen_at, $2) WHERE run_equivalence_key = $1
