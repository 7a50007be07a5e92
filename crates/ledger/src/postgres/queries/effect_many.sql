-- The effects of some admissions.
SELECT * FROM effect WHERE seq = ANY($1::bigint[]);
