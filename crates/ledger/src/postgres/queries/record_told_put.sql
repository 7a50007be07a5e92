-- What an event tells.
INSERT INTO record_told (seq, fields) VALUES ($1, $2);
