-- Invalid indexes of this schema, and constraints that were never checked.
SELECT c.relname AS name, 'the index is not valid, rebuild it with REINDEX' AS problem
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
  AND NOT (i.indisvalid AND i.indisready AND i.indislive)
UNION ALL
SELECT conname, 'the constraint was never checked' FROM pg_constraint
WHERE connamespace = quote_ident(current_schema())::regnamespace AND NOT convalidated
ORDER BY 1;
