-- Admissions after $1 and up to $2 in ledger order, with the columns that determine their expiry.
SELECT seq, verdict, key, received_at, happened_at FROM admission
WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3;
