-- What is known of the admissions that claimed these keys. Key by key, so that each is looked for in
-- the one partition that can hold it.
SELECT k.key, a.seq, a.digest, a.received_at, a.facts, a.principal
FROM unnest($1::bytea[]) AS w(key)
JOIN key_index k ON k.key = w.key
JOIN admission a ON a.seq = k.seq;
