-- A gate starts: whoever led a run was another process on this folder, and is gone.
UPDATE sr_run_leases SET expires_at = 0 WHERE expires_at > 0;
