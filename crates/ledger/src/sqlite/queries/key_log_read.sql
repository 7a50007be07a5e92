-- Key log entries that begin in a range of seqs; read at start.
SELECT seq, key FROM key_log WHERE seq > ?1 AND seq <= ?2 ORDER BY seq;
