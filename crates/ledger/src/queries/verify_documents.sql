-- Documents after ($1, $2), by name.
SELECT projection, entity, seq, text FROM document
WHERE (projection, entity) > ($1, $2) ORDER BY projection, entity LIMIT $3;
