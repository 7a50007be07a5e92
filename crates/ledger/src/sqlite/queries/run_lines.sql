-- Receipts of a run in the order they were kept, after ?2, as far as an account needs them.
SELECT n, id, decision, reason, event_type, path, is_unwritten, superseded_by, released_how, text
FROM issued INDEXED BY issued_run
WHERE run = ?1 AND kind = 'receipt' AND n > ?2
ORDER BY n LIMIT ?3;
