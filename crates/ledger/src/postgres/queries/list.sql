-- Receipts in ledger order after $4 and up to $6.
SELECT * FROM receipt
WHERE seq > $4 AND seq <= $6
  AND ($1::text IS NULL OR door = $1)
  AND ($2::text IS NULL OR principal = $2)
  AND ($3::text[] IS NULL OR verdict = ANY ($3))
ORDER BY seq LIMIT $5;
