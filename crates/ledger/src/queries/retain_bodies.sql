-- Bodies after $1 in ledger order, with what decides whether they go.
SELECT b.seq, length(b.bytes) AS bytes, a.received_at, a.verdict
FROM body b LEFT JOIN admission a ON a.seq = b.seq
WHERE b.seq > $1 ORDER BY b.seq LIMIT $2;
