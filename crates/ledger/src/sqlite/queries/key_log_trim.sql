-- Deletes a slice of merged key log entries: those before a seq.
DELETE FROM key_log WHERE seq < ?1;
