-- What is known of the admissions that claimed these keys.
SELECT k.key, a.seq, a.digest, a.received_at, a.facts
FROM key_index k JOIN admission a ON a.seq = k.seq
WHERE k.key = ANY ($1::bytea[]);
