-- Forgets a key, unless somebody else has claimed it since.
DELETE FROM key_index WHERE key = ?1 AND seq = ?2;
