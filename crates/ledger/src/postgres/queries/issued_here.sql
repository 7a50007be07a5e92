-- Numbers of the documents issued by some starts of a gate, after $2.
SELECT n FROM issued WHERE n > $2 AND epoch = ANY($1::bigint[]) ORDER BY n LIMIT $3;
