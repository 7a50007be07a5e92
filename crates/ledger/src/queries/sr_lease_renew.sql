-- Renews a lease; changes nothing if another runner holds it.
UPDATE sr_run_leases SET expires_at = $3, updated_at = $4 WHERE run_id = $1 AND lease_token = $2
