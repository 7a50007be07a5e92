-- The files of everything that any gate has issued up to here are on stable storage: whoever says so
-- has looked after those of the others too.
UPDATE gate SET synced_to = greatest(synced_to, $2)
WHERE epoch = ANY($1::bigint[]) OR issued_to > synced_to;
