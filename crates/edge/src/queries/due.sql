-- What may be sent now, oldest first, from the index alone. Rows in flight are among them; whoever
-- asks for so many more leaves them out.
SELECT rowid FROM event_outbox
WHERE next_attempt_at <= ?1
ORDER BY next_attempt_at, rowid
LIMIT ?2;
