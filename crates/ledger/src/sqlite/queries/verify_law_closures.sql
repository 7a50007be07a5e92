-- Closures of no run, and closed ones that are not whole.
SELECT CAST(NULL AS BIGINT) AS seq, 'the closure of ' || c.platform_run_id || ' is of no run' AS what
FROM run_closure c WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.platform_run_id = c.platform_run_id)
UNION ALL
SELECT NULL, 'the closure of ' || c.platform_run_id || ' is closed, and has no document that says so'
FROM run_closure c
WHERE c.closed_at IS NOT NULL
  AND (c.path IS NULL OR c.text IS NULL OR CASE WHEN json_valid(c.text) THEN json_extract(c.text, '$.platform_run_id') END IS NOT c.platform_run_id)
ORDER BY 2;
