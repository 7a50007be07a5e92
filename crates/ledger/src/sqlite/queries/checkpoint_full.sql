-- Copies everything from the log into the file and syncs it; readers of the newest state may stay.
PRAGMA wal_checkpoint(FULL);
