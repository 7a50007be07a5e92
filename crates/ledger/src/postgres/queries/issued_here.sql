-- The numbers of what some starts of a gate have issued, after $2.
SELECT n FROM issued WHERE n > $2 AND epoch = ANY($1::bigint[]) ORDER BY n LIMIT $3;
