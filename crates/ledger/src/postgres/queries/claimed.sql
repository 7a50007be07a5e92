-- Entries of a stream with these seqs, in ledger order.
SELECT a.seq, a.key, a.verdict, a.principal, a.received_at, a.facts, b.bytes
FROM admission a LEFT JOIN body b ON b.seq = a.seq
WHERE a.seq = ANY($1) ORDER BY a.seq;
