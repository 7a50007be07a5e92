-- First seq of the newest key log entry.
SELECT max(seq) FROM key_log;
