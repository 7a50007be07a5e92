-- Fresh admissions of the inbox's door after $1, up to $2, with their bodies.
SELECT a.seq, a.facts, b.bytes AS body
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.door = 'skyra' AND a.seq > $1 AND a.seq <= $2 AND a.verdict = 'fresh'
ORDER BY a.seq LIMIT $3;
