-- Inbox rows in order of arrival, after a row. The principal comes from the admission with the same
-- number; a foreign row has none.
SELECT i.rowid, i.event_id, i.status, i.received_at, i.last_updated_at, i.payload, a.principal
FROM event_inbox i
LEFT JOIN admission a ON a.seq = i.rowid AND a.door = 'skyra'
  AND json_extract(a.facts, '$.event_id') = i.event_id
WHERE i.rowid > ?1 ORDER BY i.rowid LIMIT ?2;
