-- The fields of events.
SELECT seq, fields FROM record_told WHERE seq = ANY($1);
