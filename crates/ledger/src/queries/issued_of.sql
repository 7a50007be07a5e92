-- Documents issued for one admission.
SELECT * FROM issued WHERE of = $1 ORDER BY n;
