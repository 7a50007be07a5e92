-- The fields of records, before they are written anew.
DELETE FROM record_field WHERE record_id = ANY($1);
