-- The error of the row that failed most often; the oldest among equals.
SELECT event_id, last_error FROM event_outbox
WHERE last_error IS NOT NULL
ORDER BY attempt_count DESC, rowid
LIMIT 1;
