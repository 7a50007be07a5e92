-- One event with its link.
SELECT head, link, seen_at, drift FROM record_event WHERE seq = $1;
