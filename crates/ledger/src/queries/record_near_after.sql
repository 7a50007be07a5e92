-- Events of a group from a time on, nearest first. Reads only the requested number of rows.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND grp = $2 AND event_time BETWEEN $3 AND $4
ORDER BY event_time, seq LIMIT $5;
