-- Closures whose files may be missing.
SELECT * FROM run_closure WHERE closed_at IS NOT NULL AND is_filed = 0
ORDER BY platform_run_id LIMIT $1;
