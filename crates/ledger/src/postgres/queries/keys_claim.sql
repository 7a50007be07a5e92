-- Claims keys. A key that is taken fails the transaction: something writes without the lock.
INSERT INTO key_index (key, seq) SELECT * FROM unnest($1::bytea[], $2::bigint[]);
