-- Where the receipt of an admission is: the one about the admission itself that needs no reason.
SELECT path FROM issued
WHERE of = ?1 AND seq = ?1 AND kind = 'receipt' AND reason IS NULL
ORDER BY n LIMIT 1;
