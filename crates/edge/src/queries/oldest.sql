-- The oldest row: rowids ascend in order of arrival.
SELECT created_at FROM event_outbox ORDER BY rowid LIMIT 1;
