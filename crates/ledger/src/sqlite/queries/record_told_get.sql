-- What an event tells.
SELECT fields FROM record_told WHERE seq = ?1;
