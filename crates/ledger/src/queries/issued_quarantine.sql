-- Quarantine records of one run, in order after $2. Written so that the partial index is used.
SELECT * FROM issued
WHERE kind = 'quarantine' AND run = $1 AND n > $2
  AND (CAST($3 AS BIGINT) = 0 OR (superseded_by IS NULL AND released_at IS NULL))
ORDER BY n LIMIT $4;
