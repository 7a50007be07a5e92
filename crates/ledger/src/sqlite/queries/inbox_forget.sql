-- A consumer has finished with an event whose body is too old to be kept: its row has waited for
-- that, and goes too.
DELETE FROM event_inbox
WHERE event_id = ?1 AND NOT EXISTS (SELECT 1 FROM body WHERE seq = ?2);
