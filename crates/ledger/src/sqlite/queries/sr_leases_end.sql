-- Ends the leases of earlier processes on this folder, at start.
UPDATE sr_run_leases SET expires_at = 0 WHERE expires_at > 0;
