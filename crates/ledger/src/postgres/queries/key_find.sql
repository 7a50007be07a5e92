-- The seq that claimed this key.
SELECT seq FROM key_index WHERE key = $1;
