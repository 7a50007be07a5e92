-- A partition was made.
INSERT INTO growth (parent, lo, hi, name) VALUES ($1, $2, $3, $4);
