-- As inbox_list.sql, in one status.
SELECT place, event_id, status, received_at, last_updated_at, payload FROM event_inbox
WHERE status = $3 AND place > $1 ORDER BY place LIMIT $2;
