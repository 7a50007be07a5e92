-- Entries of a stream after $2, in ledger order. The literal conditions are those of the partial index,
-- which is used only if they are repeated.
SELECT a.seq, a.key, a.verdict, a.principal, a.received_at, a.facts, b.bytes
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.door = $1 AND a.seq > $2
  AND a.verdict IN ('fresh', 'revision')
  AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0'))
ORDER BY a.seq LIMIT $3;
