-- One row of the inbox, with the principal as in inbox_list.sql.
SELECT i.rowid AS place, i.event_id, i.status, i.received_at, i.last_updated_at, i.payload, a.principal
FROM event_inbox i
LEFT JOIN admission a ON a.seq = i.rowid AND a.door = 'skyra'
  AND json_extract(a.facts, '$.event_id') = i.event_id
WHERE i.event_id = ?1;
