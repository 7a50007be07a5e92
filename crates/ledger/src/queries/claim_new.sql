-- Entries that were never claimed: everything after the head, in ledger order.
SELECT a.seq, 0 AS attempt, coalesce(length(b.bytes), 0) AS bytes
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.door = $1 AND a.seq > coalesce((SELECT head FROM claim_head WHERE door = $1), 0)
  AND a.verdict IN ('fresh', 'revision')
  AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0'))
ORDER BY a.seq LIMIT $2;
