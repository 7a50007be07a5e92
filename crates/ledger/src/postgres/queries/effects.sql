-- Effects in ledger order after $3.
SELECT e.* FROM effect e
WHERE e.seq > $3
  AND (cardinality($2::text[]) = 0 OR e.state = ANY($2::text[]))
  AND ($1::text IS NULL OR $1::text = (SELECT door FROM admission a WHERE a.seq = e.seq))
ORDER BY e.seq LIMIT $4;
