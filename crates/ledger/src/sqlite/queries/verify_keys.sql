-- Claims of the plain index.
SELECT key, seq FROM key_index ORDER BY key;
