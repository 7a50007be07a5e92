-- The run of noted claims that a place would be in.
SELECT seq, key FROM key_log WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1;
