-- The files of everything that a gate has issued up to here are on stable storage.
UPDATE gate SET synced_to = greatest(synced_to, $2) WHERE epoch = ANY($1::bigint[]);
