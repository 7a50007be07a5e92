-- Whether a place belongs to the stream.
SELECT seq FROM admission
WHERE seq = ?2 AND door = ?1
  AND verdict IN ('fresh', 'revision')
  AND (door = 'skyra' OR (door >= 'events/' AND door < 'events0'));
