-- Inserts raw bodies under the seqs of their admissions.
INSERT INTO body (seq, bytes) SELECT * FROM unnest($1::bigint[], $2::bytea[]);
