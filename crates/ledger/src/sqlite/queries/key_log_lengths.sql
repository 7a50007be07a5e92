-- Lengths of the key log entries that begin up to a seq.
SELECT seq, length(key) FROM key_log WHERE seq <= ?1 ORDER BY seq;
