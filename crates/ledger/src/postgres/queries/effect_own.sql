-- Takes over effects of a dead gate: this gate starts the intended ones and documents the lost ones.
UPDATE effect SET epoch = $2 WHERE seq = ANY($1::bigint[]) AND state IN ('intended', 'ambiguous');
