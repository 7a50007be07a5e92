-- Notes claims that are not merged yet: a run of keys from this place on.
INSERT INTO key_log (seq, key) VALUES (?1, ?2);
