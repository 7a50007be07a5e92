-- The first line of each effect's history.
INSERT INTO effect_history (seq, n, at, attempt, what, epoch)
SELECT seq, 1, at, attempt, what, epoch
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
     AS b(seq, at, attempt, what, epoch);
