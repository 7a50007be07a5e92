-- Where a slice of ?2 merged runs ends, if there are more than that.
SELECT seq FROM key_log WHERE seq <= ?1 ORDER BY seq LIMIT 1 OFFSET ?2;
