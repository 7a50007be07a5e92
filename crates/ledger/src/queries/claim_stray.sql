-- What is held by leases that reach beyond $2, further than any lease may: a wrong clock wrote them.
SELECT c.seq, c.attempt, coalesce(length(b.bytes), 0) AS bytes
FROM claim c LEFT JOIN body b ON b.seq = c.seq
WHERE c.door = $1 AND c.expires_at > $2
ORDER BY c.expires_at, c.seq LIMIT $3;
