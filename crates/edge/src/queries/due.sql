-- Due rows, oldest first, from the index alone. Includes rows in flight; the caller filters them
-- out and raises the limit accordingly.
SELECT rowid FROM event_outbox
WHERE next_attempt_at <= ?1
ORDER BY next_attempt_at, rowid
LIMIT ?2;
