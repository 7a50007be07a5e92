-- Something admitted later under the same key that is not due at ?2 yet: while it is known, so must
-- the key be, or a copy of it would be admitted as fresh.
SELECT received_at, happened_at FROM admission
WHERE key = ?1 AND verdict IN ('revision', 'conflict')
  AND (happened_at IS NULL OR max(received_at, happened_at) >= ?2)
ORDER BY seq DESC LIMIT 1;
