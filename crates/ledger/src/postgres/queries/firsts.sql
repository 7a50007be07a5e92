-- Admissions that claimed these keys. Looked up key by key, so that each search uses only the partition of
-- its key.
SELECT k.key, a.seq, a.digest, a.received_at, a.facts, a.principal
FROM unnest($1::bytea[]) AS w(key)
JOIN key_index k ON k.key = w.key
JOIN admission a ON a.seq = k.seq;
