-- Inbox rows in order of arrival, after a row. The principal comes from the admission with the same
-- number.
SELECT i.place, i.event_id, i.status, i.received_at, i.last_updated_at, i.payload, a.principal
FROM event_inbox i LEFT JOIN admission a ON a.seq = i.place
WHERE i.place > $1 ORDER BY i.place LIMIT $2;
