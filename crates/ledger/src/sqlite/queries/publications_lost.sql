-- Publications in flight at earlier processes. Written so that the partial index is used.
SELECT * FROM record_publication
WHERE door = ?1 AND state <> 'done' AND state = 'in_flight' AND epoch <> ?2 ORDER BY n;
