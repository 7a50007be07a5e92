-- Publications after a place whose outcome nobody knows. Written so that the partial index serves it.
SELECT * FROM record_publication
WHERE door = $1 AND n > $2 AND state <> 'done' AND state = 'ambiguous' ORDER BY n LIMIT $3;
