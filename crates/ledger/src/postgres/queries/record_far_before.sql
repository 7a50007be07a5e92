-- The nearest event before a time that is of this group and number, and of one of these sources.
SELECT event_time, head FROM record_event
WHERE door = $1 AND grp = $2 AND event_time < $3 AND number = $4 AND source = ANY($5)
ORDER BY event_time DESC LIMIT 1;
