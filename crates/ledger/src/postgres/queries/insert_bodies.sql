-- The raw bodies, under the places of the admissions they belong to.
INSERT INTO body (seq, bytes) SELECT * FROM unnest($1::bigint[], $2::bytea[]);
