-- The body of a refusal is gone, so there is room for another.
UPDATE refusal_quota SET bytes = max(0, bytes - ?2)
WHERE (door, principal) = (SELECT door, principal FROM admission WHERE seq = ?1);
