-- One event with what was decided about it.
SELECT head, link, seen_at, drift FROM record_event WHERE seq = $1;
