-- Schema of the amcheck extension, if installed, and whether this user may call it.
SELECT n.nspname::text AS schema,
       coalesce(has_schema_privilege(n.oid, 'USAGE')
                AND has_function_privilege(p.oid, 'EXECUTE'), false) AS is_allowed
FROM (SELECT 1) AS one
LEFT JOIN pg_extension e ON e.extname = 'amcheck'
LEFT JOIN pg_namespace n ON n.oid = e.extnamespace
LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'bt_index_check' AND p.pronargs = 2;
