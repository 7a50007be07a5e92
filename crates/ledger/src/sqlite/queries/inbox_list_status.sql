-- As inbox_list.sql, over the index of one status.
SELECT rowid, event_id, status, received_at, last_updated_at, payload FROM event_inbox
WHERE status = ?3 AND rowid > ?1 ORDER BY rowid LIMIT ?2;
