-- The first claims of the plain index, in key order.
SELECT key, seq FROM key_index ORDER BY key LIMIT ?1;
