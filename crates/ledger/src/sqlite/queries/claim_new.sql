-- Entries that were never claimed: everything after the head, in ledger order.
SELECT a.seq, 0, coalesce(length(b.bytes), 0)
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.door = ?1 AND a.seq > ?2
  AND a.verdict IN ('fresh', 'revision')
  AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0'))
ORDER BY a.seq LIMIT ?3;
