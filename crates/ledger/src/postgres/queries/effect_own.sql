-- Effects that nobody has begun have a new owner.
UPDATE effect SET epoch = $2 WHERE seq = ANY($1::bigint[]) AND state = 'intended';
