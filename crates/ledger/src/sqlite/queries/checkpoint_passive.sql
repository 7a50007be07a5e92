-- Passive checkpoint: copies as much of the WAL as possible without blocking.
PRAGMA wal_checkpoint(PASSIVE);
