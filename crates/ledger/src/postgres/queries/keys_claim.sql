-- Claims keys. Fewer rows than keys mean that another writer does not hold the lock.
INSERT INTO key_index (key, seq) SELECT * FROM unnest($1::bytea[], $2::bigint[])
ON CONFLICT (key) DO NOTHING;
