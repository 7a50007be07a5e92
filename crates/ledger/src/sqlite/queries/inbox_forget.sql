-- Deletes the inbox row of a finished event whose body has expired.
DELETE FROM event_inbox
WHERE event_id = ?1 AND NOT EXISTS (SELECT 1 FROM body WHERE seq = ?2);
