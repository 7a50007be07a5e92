-- A record that is no more: what opened it belongs to another one. Its events keep their history.
DELETE FROM record WHERE record_id = ?1;
