-- How long the runs are that begin up to a place.
SELECT seq, length(key) FROM key_log WHERE seq <= ?1 ORDER BY seq;
