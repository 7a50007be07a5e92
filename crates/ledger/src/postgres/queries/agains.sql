-- Newest stored revision or conflict per key and content. Where keys are scoped to principals, only of
-- that principal, because each has its own evidence. `at` is the index of the content, from one.
SELECT DISTINCT ON (w.at) w.at, a.seq
FROM unnest($1::bytea[], $2::bytea[], $3::text[]) WITH ORDINALITY AS w(key, digest, principal, at)
JOIN admission a ON a.key = w.key AND a.digest = w.digest
WHERE a.verdict IN ('revision', 'conflict') AND (w.principal IS NULL OR a.principal = w.principal)
ORDER BY w.at, a.seq DESC;
