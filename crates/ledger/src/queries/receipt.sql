-- The receipt of one seq.
SELECT * FROM receipt WHERE seq = $1;
