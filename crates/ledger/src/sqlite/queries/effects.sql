-- Effects in ledger order after ?3.
SELECT e.* FROM effect e
WHERE e.seq > ?3
  AND (json_array_length(?2) = 0 OR e.state IN (SELECT value FROM json_each(?2)))
  AND (?1 IS NULL OR ?1 = (SELECT door FROM admission a WHERE a.seq = e.seq))
ORDER BY e.seq LIMIT ?4;
