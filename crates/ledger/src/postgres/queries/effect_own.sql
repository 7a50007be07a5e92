-- Takes over effects of a dead gate: intended ones are to be begun by this gate, and lost ones are
-- not documented yet.
UPDATE effect SET epoch = $2 WHERE seq = ANY($1::bigint[]) AND state IN ('intended', 'ambiguous');
