-- One event with its link.
SELECT seq, head, link, seen_at, drift FROM record_event WHERE seq = ?1;
