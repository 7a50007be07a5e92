-- One effect.
SELECT * FROM effect WHERE seq = $1;
