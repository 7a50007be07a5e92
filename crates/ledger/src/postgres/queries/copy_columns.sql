-- The columns of a table and their types.
SELECT a.attname::text AS name, format_type(a.atttypid, NULL) AS kind
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relname = $1
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;
