-- Claims keys. Fewer rows than keys means that something writes without the lock.
INSERT INTO key_index (key, seq) SELECT * FROM unnest($1::bytea[], $2::bigint[])
ON CONFLICT (key) DO NOTHING;
