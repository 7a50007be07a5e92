-- Forgets a key, unless another seq has claimed it since.
DELETE FROM key_index WHERE key = ?1 AND seq = ?2;
