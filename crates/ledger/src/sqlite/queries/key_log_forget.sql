-- Forgets a run of noted claims.
DELETE FROM key_log WHERE seq = ?1;
