-- Publications that an earlier process had in flight.
SELECT * FROM record_publication
WHERE door = ?1 AND state <> 'done' AND state = 'in_flight'
  AND epoch <> (SELECT max(epoch) FROM gate) ORDER BY n LIMIT ?2;
