-- Deletes a key log entry.
DELETE FROM key_log WHERE seq = ?1;
