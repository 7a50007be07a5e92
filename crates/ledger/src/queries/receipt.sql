-- The receipt at one place.
SELECT * FROM receipt WHERE seq = $1;
