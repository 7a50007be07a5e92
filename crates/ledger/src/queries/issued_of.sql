-- Everything that was issued about one admission.
SELECT * FROM issued WHERE of = $1 ORDER BY n;
