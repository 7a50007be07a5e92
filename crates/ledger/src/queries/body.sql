-- The raw body of a seq.
SELECT bytes FROM body WHERE seq = $1;
