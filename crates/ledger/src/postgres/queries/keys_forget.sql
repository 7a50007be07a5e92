-- Forgets keys, except those that another seq has claimed since.
DELETE FROM key_index k USING unnest($1::bytea[], $2::bigint[]) AS w(key, seq)
WHERE k.key = w.key AND k.seq = w.seq;
