-- Revisions or conflicts already kept under these keys with these very contents; the newest of each.
SELECT DISTINCT ON (a.key, a.digest) a.key, a.digest, a.seq
FROM unnest($1::bytea[], $2::bytea[]) AS w(key, digest)
JOIN admission a ON a.key = w.key AND a.digest = w.digest
WHERE a.verdict IN ('revision', 'conflict')
ORDER BY a.key, a.digest, a.seq DESC;
