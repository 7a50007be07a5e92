-- Copies what it can from the log into the file without holding anyone up.
PRAGMA wal_checkpoint(PASSIVE);
