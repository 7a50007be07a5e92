-- Like list.sql, for quarantine verdicts only. These are rare; the condition is written so that the
-- partial index is used.
SELECT * FROM receipt
WHERE seq > ?4 AND seq <= ?6
  AND (?1 IS NULL OR door = ?1)
  AND (?2 IS NULL OR principal = ?2)
  AND verdict IN ('conflict', 'refused')
  AND (?3 IS NULL OR verdict IN (SELECT value FROM json_each(?3)))
ORDER BY seq LIMIT ?5;
