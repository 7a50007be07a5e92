-- The first claims of the plain index, in the order of their keys.
SELECT key, seq FROM key_index ORDER BY key LIMIT ?1;
