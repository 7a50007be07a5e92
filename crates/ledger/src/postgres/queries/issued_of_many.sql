-- Documents issued for some admissions, in the order of their numbers.
SELECT * FROM issued WHERE of = ANY($1::bigint[]) ORDER BY n;
