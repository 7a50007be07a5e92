-- Extends or releases a lease (then without a token).
UPDATE claim SET lease = ?3, expires_at = ?4 WHERE door = ?1 AND seq = ?2;
