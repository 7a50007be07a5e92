-- The nearest event before a time with this group, number and source.
SELECT event_time, head FROM record_event
WHERE door = $1 AND grp = $2 AND number = $3 AND source = $4 AND event_time < $5
ORDER BY event_time DESC LIMIT 1;
