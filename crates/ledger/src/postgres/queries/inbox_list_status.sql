-- Like inbox_list.sql, for one status.
SELECT i.place, i.event_id, i.status, i.received_at, i.last_updated_at, i.payload, a.principal
FROM event_inbox i LEFT JOIN admission a ON a.seq = i.place
WHERE i.status = $3 AND i.place > $1 ORDER BY i.place LIMIT $2;
