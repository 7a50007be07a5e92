-- Deletes the fields of a changed record, before they are written again.
DELETE FROM record_field
WHERE record_id = $1 AND NOT EXISTS (SELECT 1 FROM record WHERE record_id = $1 AND digest = $2);
