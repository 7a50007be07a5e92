-- The events of a record.
SELECT seq FROM record_event WHERE record_id = $1 ORDER BY seq;
