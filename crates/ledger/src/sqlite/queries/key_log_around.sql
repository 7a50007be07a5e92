-- The key log entry whose range contains a seq.
SELECT seq, key FROM key_log WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1;
