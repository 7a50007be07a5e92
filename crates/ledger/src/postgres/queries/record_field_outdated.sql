-- The fields of a record that says something else now, before they are written anew.
DELETE FROM record_field
WHERE record_id = $1 AND NOT EXISTS (SELECT 1 FROM record WHERE record_id = $1 AND digest = $2);
