-- The entry of a stream at a place.
SELECT a.seq, a.key, a.verdict, a.principal, a.received_at, a.facts, b.bytes
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.seq = ?1;
