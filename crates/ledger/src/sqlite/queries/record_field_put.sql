-- Writes the fields of a record, unless it is unchanged.
INSERT INTO record_field (record_id, name, value, source, event) VALUES (?1, ?2, ?3, ?4, ?5);
