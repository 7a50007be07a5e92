-- Marks recovered effects as documented.
UPDATE effect SET epoch = NULL WHERE seq = ANY($1::bigint[]) AND state = 'ambiguous';
