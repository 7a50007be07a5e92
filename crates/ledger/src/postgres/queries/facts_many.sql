-- The facts of some admissions.
SELECT seq, facts FROM admission WHERE seq = ANY($1::bigint[]);
