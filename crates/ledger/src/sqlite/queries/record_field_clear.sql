-- Deletes the fields of a record before they are rewritten.
DELETE FROM record_field WHERE record_id = ?1;
