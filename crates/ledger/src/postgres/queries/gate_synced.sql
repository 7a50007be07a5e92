-- Records that all files issued by this gate up to here are on stable storage. Each gate writes the files
-- it issued.
UPDATE gate SET synced_to = greatest(synced_to, $2) WHERE epoch = ANY($1::bigint[]);
