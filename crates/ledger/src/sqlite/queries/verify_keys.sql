-- Claims of the plain index after the key ?1.
SELECT key, seq FROM key_index WHERE key > ?1 ORDER BY key LIMIT ?2;
