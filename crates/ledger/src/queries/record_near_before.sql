-- Events of a group up to a time, nearest first. Reads only the requested number of rows.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND grp = $2 AND event_time BETWEEN $3 AND $4
ORDER BY event_time DESC, seq DESC LIMIT $5;
