-- The files of everything that a gate has issued up to here are on stable storage. It speaks for
-- itself only: the others write the files of what they issued.
UPDATE gate SET synced_to = greatest(synced_to, $2) WHERE epoch = ANY($1::bigint[]);
