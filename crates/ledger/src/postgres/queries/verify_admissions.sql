-- Admissions after $1 and up to $2 with the rows they must match: the body, the key claim, and the
-- referenced admission.
SELECT a.seq, a.door, a.principal, a.verdict, a.key, a.digest, a.received_at, a.attempt, a.first,
       a.code, a.facts, b.bytes AS body,
       (SELECT k.seq FROM key_index k WHERE k.key = a.key) AS claimed_by,
       f.key AS first_key, f.verdict AS first_verdict
FROM admission a
LEFT JOIN body b ON b.seq = a.seq
LEFT JOIN admission f ON f.seq = a.first
WHERE a.seq > $1 AND a.seq <= $2
ORDER BY a.seq LIMIT $3;
