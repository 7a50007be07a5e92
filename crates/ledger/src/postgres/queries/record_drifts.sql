-- Whether the rows of these events could be kept.
SELECT seq, drift FROM record_event WHERE seq = ANY($1);
