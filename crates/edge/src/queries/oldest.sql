-- Rows are numbered as they come.
SELECT created_at FROM event_outbox ORDER BY rowid LIMIT 1;
