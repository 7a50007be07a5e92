-- Writes the fields of a record, unless it is unchanged.
INSERT INTO record_field (record_id, name, value, source, event)
SELECT ?1, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM record WHERE record_id = ?1 AND digest = ?2);
