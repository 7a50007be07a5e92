-- What was lost is said.
UPDATE effect SET epoch = NULL WHERE seq = ANY($1::bigint[]) AND state = 'ambiguous';
