-- Everything that was issued about some admissions, in the order it was kept.
SELECT * FROM issued WHERE of = ANY($1::bigint[]) ORDER BY n;
