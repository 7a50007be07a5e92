-- Deletes the fields of records before they are rewritten.
DELETE FROM record_field WHERE record_id = ANY($1);
