-- The events of a group from a time on, the nearest first: as many rows are read as are wanted.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND grp = $2 AND event_time BETWEEN $3 AND $4
ORDER BY event_time, seq LIMIT $5;
