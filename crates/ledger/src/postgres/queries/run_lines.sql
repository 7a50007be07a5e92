-- Receipts of a run in the order of their numbers, after $2, with the columns of a run report.
SELECT n, id, decision, reason, event_type, path, is_unwritten, superseded_by, released_how, text
FROM issued
WHERE run = $1 AND kind = 'receipt' AND n > $2
ORDER BY n LIMIT $3;
