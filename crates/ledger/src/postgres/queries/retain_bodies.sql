-- Bodies after $1 in ledger order, with the columns that determine their expiry.
SELECT b.seq, octet_length(b.bytes)::bigint AS bytes, a.received_at, a.verdict
FROM body b LEFT JOIN admission a ON a.seq = b.seq
WHERE b.seq > $1 ORDER BY b.seq LIMIT $2;
