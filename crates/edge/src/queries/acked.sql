-- The only way out. The id is asked for too: numbers of rows are used again.
DELETE FROM event_outbox WHERE rowid = ?1 AND event_id = ?2;
