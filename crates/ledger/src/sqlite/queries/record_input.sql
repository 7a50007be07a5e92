-- The fields of events.
SELECT seq, fields FROM record_told WHERE seq IN (SELECT value FROM json_each(?1));
