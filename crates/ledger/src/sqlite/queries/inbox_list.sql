-- The inbox in order of arrival, after a row.
SELECT rowid, event_id, status, received_at, last_updated_at, payload FROM event_inbox
WHERE rowid > ?1 ORDER BY rowid LIMIT ?2;
