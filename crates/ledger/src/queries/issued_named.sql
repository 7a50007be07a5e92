-- Every document with this id, of every run.
SELECT * FROM issued WHERE id = $1 ORDER BY n;
