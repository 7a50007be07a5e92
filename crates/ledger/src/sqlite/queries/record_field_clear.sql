-- The fields of a record, before they are written anew.
DELETE FROM record_field WHERE record_id = ?1;
