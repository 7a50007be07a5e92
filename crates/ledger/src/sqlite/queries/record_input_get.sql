-- The fields of an event.
SELECT fields FROM record_told WHERE seq = ?1;
