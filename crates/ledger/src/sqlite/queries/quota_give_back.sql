-- The body of a refusal goes, so there is room for another.
UPDATE refusal_quota
SET bytes = max(0, bytes - coalesce((SELECT length(b.bytes) FROM body b WHERE b.seq = ?1), 0))
WHERE (door, principal) = (SELECT door, principal FROM admission WHERE seq = ?1);
