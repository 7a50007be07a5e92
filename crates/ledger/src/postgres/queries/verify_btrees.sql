-- B-tree indexes of this schema.
SELECT c.oid::bigint AS id, c.relname AS name
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND m.amname = 'btree' AND c.relkind = 'i'
  AND i.indisvalid
ORDER BY c.relname;
