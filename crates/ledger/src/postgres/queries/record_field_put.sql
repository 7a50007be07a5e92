-- Writes the fields of a record, unless it is unchanged.
INSERT INTO record_field (record_id, name, value, source, event)
SELECT $1, t.name, t.value, t.source, t.event
FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) AS t (name, value, source, event)
WHERE NOT EXISTS (SELECT 1 FROM record WHERE record_id = $1 AND digest = $2);
