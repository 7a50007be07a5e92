-- The fields of a record.
SELECT name, value, source, event FROM record_field WHERE record_id = $1 ORDER BY name;
