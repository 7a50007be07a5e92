-- The same for a claim that may not be merged yet.
DELETE FROM key_log WHERE seq = ?1;
