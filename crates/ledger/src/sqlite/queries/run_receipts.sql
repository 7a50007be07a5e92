-- Receipts of a run with their texts, in the order of their numbers, after ?2. Written so that the partial
-- index is used.
SELECT n, decision, path, text FROM issued INDEXED BY issued_run
WHERE run = ?1 AND kind = 'receipt' AND n > ?2
ORDER BY n LIMIT ?3;
