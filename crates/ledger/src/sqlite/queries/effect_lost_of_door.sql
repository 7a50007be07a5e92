-- Open effects of a door, and outcomes without documents. The partial index is used.
SELECT e.* FROM effect e JOIN admission a ON a.seq = e.seq
WHERE e.state <> 'done' AND e.state IN ('in_flight', 'ambiguous') AND a.door = ?1 AND e.seq > ?2
  AND (e.state = 'in_flight' OR NOT EXISTS (
        SELECT 1 FROM issued i WHERE i.of = e.seq AND i.decision = 'QUARANTINE' AND i.seq = e.seq))
ORDER BY e.seq LIMIT ?3;
