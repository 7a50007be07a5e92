-- Ambiguous publications after a number. Written so that the partial index is used.
SELECT * FROM record_publication
WHERE door = $1 AND n > $2 AND state <> 'done' AND state = 'ambiguous' ORDER BY n LIMIT $3;
