-- Notes a claim that is not merged into key_index yet.
INSERT INTO key_log (seq, key) VALUES (?1, ?2);
