-- The merged keys in their order, a slice at a time.
SELECT key FROM key_index WHERE key > ?1 ORDER BY key LIMIT ?2;
