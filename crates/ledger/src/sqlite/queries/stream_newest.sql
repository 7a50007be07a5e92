-- The newest seq of a stream.
SELECT seq FROM admission
WHERE door = ?1
  AND verdict IN ('fresh', 'revision')
  AND (door = 'skyra' OR (door >= 'events/' AND door < 'events0'))
ORDER BY seq DESC LIMIT 1;
