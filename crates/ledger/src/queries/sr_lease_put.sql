-- Takes, takes over or renews a lease; the caller has checked it.
INSERT INTO sr_run_leases (run_id, owner_id, lease_token, expires_at, updated_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id) DO UPDATE SET owner_id = excluded.owner_id, lease_token = excluded.lease_token,
  expires_at = excluded.expires_at, updated_at = excluded.updated_at
