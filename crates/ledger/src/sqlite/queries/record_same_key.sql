-- The events that share a hard key.
SELECT seq, head, link, seen_at FROM record_event
WHERE door = ?1 AND hard_key = ?2 ORDER BY seq LIMIT ?3;
