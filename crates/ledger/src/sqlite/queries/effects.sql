-- Effects in ledger order after ?3.
SELECT e.* FROM effect e
WHERE e.seq > ?3
  AND (?2 IS NULL OR instr(?2, ' ' || e.state || ' ') > 0)
  AND (?1 IS NULL OR ?1 = (SELECT door FROM admission a WHERE a.seq = e.seq))
ORDER BY e.seq LIMIT ?4;
