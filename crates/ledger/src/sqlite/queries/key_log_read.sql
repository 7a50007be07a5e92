-- The claims after the watermark, read back at start.
SELECT seq, key FROM key_log WHERE seq > ?1 ORDER BY seq;
