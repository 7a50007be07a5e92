-- The fields of records; with ?2, only those up to that length.
SELECT record_id, name, value, source, event FROM record_field
WHERE record_id IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR length(value) <= ?2)
ORDER BY record_id, name;
