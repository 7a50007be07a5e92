-- Documents of one kind whose entity starts with $2 (and ends before $3), after $4, by entity.
SELECT entity, text FROM document
WHERE projection = $1 AND entity >= $2 AND (CAST($3 AS TEXT) IS NULL OR entity < $3) AND entity > $4
ORDER BY entity LIMIT $5;
