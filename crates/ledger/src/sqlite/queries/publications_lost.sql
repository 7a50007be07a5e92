-- What other processes had in flight. Written so that the partial index serves it.
SELECT * FROM record_publication
WHERE door = ?1 AND state <> 'done' AND state = 'in_flight' AND epoch <> ?2 ORDER BY n;
