-- Events from a time on without a group but with a hard key.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND grp = '' AND event_time BETWEEN $2 AND $3 AND hard_key IS NOT NULL
ORDER BY event_time, seq LIMIT $4;
