-- The files of everything that this gate has issued up to here are on stable storage. Other gates
-- write the files of what they issued.
UPDATE gate SET synced_to = greatest(synced_to, $2) WHERE epoch = ANY($1::bigint[]);
