-- Full checkpoint: copies the whole WAL and syncs the file; readers of the newest state do not block it.
PRAGMA wal_checkpoint(FULL);
