-- Events of a group without a time, newest first.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND grp = $2 AND event_time IS NULL
ORDER BY seq DESC LIMIT $3;
