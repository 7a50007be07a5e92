-- The first stored refusal of the same bytes at this door for the same producer and reason.
SELECT seq FROM admission
WHERE verdict = 'refused' AND digest = ?1 AND door = ?2 AND principal = ?3 AND code = ?4
ORDER BY seq LIMIT 1;
