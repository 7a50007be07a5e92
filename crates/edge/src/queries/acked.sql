-- Removes an acknowledged row. The id is compared too, because rowids are reused.
DELETE FROM event_outbox WHERE rowid = ?1 AND event_id = ?2;
