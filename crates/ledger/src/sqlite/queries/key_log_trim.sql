-- Forgets noted claims that are merged, a slice at a time.
DELETE FROM key_log WHERE seq IN (SELECT seq FROM key_log WHERE seq <= ?1 ORDER BY seq LIMIT ?2);
