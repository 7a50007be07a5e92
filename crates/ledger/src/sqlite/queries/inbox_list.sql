-- The inbox in order of arrival, after a row.
-- The principal is that of the admission, whose number the row has; a row that is not ours has none.
SELECT i.rowid AS place, i.event_id, i.status, i.received_at, i.last_updated_at, i.payload, a.principal
FROM event_inbox i
LEFT JOIN admission a ON a.seq = i.rowid AND a.door = 'skyra'
  AND json_extract(a.facts, '$.event_id') = i.event_id
WHERE i.rowid > ?1 ORDER BY i.rowid LIMIT ?2;
