-- Newest later admission per key that does not expire before $2. The key must be retained as long as that
-- admission, or a copy of it would be admitted as fresh.
SELECT DISTINCT ON (w.at) w.at, a.received_at, a.happened_at
FROM unnest($1::bytea[]) WITH ORDINALITY AS w(key, at)
JOIN admission a ON a.key = w.key
WHERE a.verdict IN ('revision', 'conflict')
  AND (a.happened_at IS NULL OR greatest(a.received_at, a.happened_at) >= $2)
ORDER BY w.at, a.seq DESC;
