-- The fields of records; with ?2, only those up to that length.
SELECT name, value, source, event FROM record_field
WHERE record_id = ?1 AND (?2 IS NULL OR length(value) <= ?2) ORDER BY name;
