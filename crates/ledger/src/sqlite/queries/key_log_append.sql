-- Appends unmerged claims to the key log: a sequence of keys from this seq on.
INSERT INTO key_log (seq, key) VALUES (?1, ?2);
