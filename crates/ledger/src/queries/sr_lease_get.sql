-- The holder of a lease.
SELECT owner_id, lease_token, expires_at FROM sr_run_leases WHERE run_id = $1
