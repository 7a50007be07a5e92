-- A place is held for longer, or given back (then without a lease).
UPDATE claim SET lease = ?3, expires_at = ?4 WHERE door = ?1 AND seq = ?2;
