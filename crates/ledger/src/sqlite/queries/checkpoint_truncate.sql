-- Copies everything from the log into the file, syncs it and empties the log.
PRAGMA wal_checkpoint(TRUNCATE);
