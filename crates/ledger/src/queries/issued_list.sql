-- Documents in the order they were kept, after $5.
SELECT * FROM issued
WHERE n > $5
  AND (CAST($1 AS TEXT) IS NULL OR kind = $1)
  AND (CAST($2 AS TEXT) IS NULL OR run = $2)
  AND (CAST($3 AS TEXT) IS NULL OR decision = $3)
  AND (CAST($4 AS BIGINT) = 0 OR (superseded_by IS NULL AND released_at IS NULL))
ORDER BY n LIMIT $6;
