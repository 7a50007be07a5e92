-- Publications after a number, in order.
SELECT * FROM record_publication WHERE door = $1 AND n > $2 ORDER BY n LIMIT $3;
