-- Truncating checkpoint: copies the whole WAL, syncs the file and truncates the WAL.
PRAGMA wal_checkpoint(TRUNCATE);
