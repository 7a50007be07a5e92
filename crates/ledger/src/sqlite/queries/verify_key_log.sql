-- Noted claims after ?1 and up to ?2, with the admission they name.
SELECT l.key, l.seq, a.key AS admission_key, a.verdict
FROM key_log l LEFT JOIN admission a ON a.seq = l.seq
WHERE l.seq > ?1 AND l.seq <= ?2 ORDER BY l.seq LIMIT ?3;
