-- Whether a seq belongs to a stream.
SELECT 1 FROM admission
WHERE seq = ?2 AND door = ?1
  AND verdict IN ('fresh', 'revision')
  AND (door = 'skyra' OR (door >= 'events/' AND door < 'events0'));
