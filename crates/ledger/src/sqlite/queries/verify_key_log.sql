-- Key log entries that begin after ?1 and up to ?2.
SELECT seq, key FROM key_log WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3;
