-- Runs that begin in a range of places, read back at start.
SELECT seq, key FROM key_log WHERE seq > ?1 AND seq <= ?2 ORDER BY seq;
