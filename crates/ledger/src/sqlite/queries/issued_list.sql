-- Documents in the order of their numbers, after ?5.
SELECT * FROM issued
WHERE n > ?5
  AND (?1 IS NULL OR kind = ?1)
  AND (?2 IS NULL OR run = ?2)
  AND (?3 IS NULL OR decision = ?3)
  AND (?4 = 0 OR (superseded_by IS NULL AND released_at IS NULL))
ORDER BY n LIMIT ?6;
