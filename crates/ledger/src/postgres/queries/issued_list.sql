-- Documents in the order of their numbers, after $5.
SELECT * FROM issued
WHERE n > $5
  AND ($1::text IS NULL OR kind = $1::text)
  AND ($2::text IS NULL OR run = $2::text)
  AND ($3::text IS NULL OR decision = $3::text)
  AND (NOT $4::boolean OR (superseded_by IS NULL AND released_at IS NULL))
ORDER BY n LIMIT $6;
