-- A later admission with the same key that does not expire before ?2. The key must be retained as long as
-- that admission, or a copy of it would be admitted as fresh.
SELECT received_at, happened_at FROM admission
WHERE key = ?1 AND verdict IN ('revision', 'conflict')
  AND (happened_at IS NULL OR max(received_at, happened_at) >= ?2)
ORDER BY seq DESC LIMIT 1;
