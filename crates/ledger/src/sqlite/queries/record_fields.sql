-- The fields of a record; those that are long are left out where ?2 says how long.
SELECT name, value, source, event FROM record_field
WHERE record_id = ?1 AND (?2 IS NULL OR length(value) <= ?2) ORDER BY name;
