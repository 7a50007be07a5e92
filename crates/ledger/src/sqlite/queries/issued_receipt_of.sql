-- The receipt of an admission itself, which has no reason.
SELECT path FROM issued
WHERE of = ?1 AND seq = ?1 AND kind = 'receipt' AND reason IS NULL
ORDER BY n LIMIT 1;
