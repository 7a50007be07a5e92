-- Only with its own token; changes nothing where somebody else has it.
UPDATE sr_run_leases SET expires_at = $3, updated_at = $4 WHERE run_id = $1 AND lease_token = $2
