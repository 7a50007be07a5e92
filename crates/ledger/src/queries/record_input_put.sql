-- Stores the fields of an event.
INSERT INTO record_told (seq, fields) VALUES ($1, $2);
