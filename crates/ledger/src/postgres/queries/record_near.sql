-- The events of a group around a time, the nearest first.
SELECT head, link, seen_at FROM record_event
WHERE door = $1 AND grp = $2 AND event_time BETWEEN $3 AND $4
ORDER BY abs(event_time - $5), seq LIMIT $6;
