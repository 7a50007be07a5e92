-- Returns the quota of a refusal whose body was removed.
UPDATE refusal_quota SET bytes = max(0, bytes - ?2)
WHERE (door, principal) = (SELECT door, principal FROM admission WHERE seq = ?1);
