-- What these events tell.
SELECT seq, fields FROM record_told WHERE seq = ANY($1);
