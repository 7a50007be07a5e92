-- Newest stored revision or conflict with this key and content. Where keys are scoped to principals, only
-- of that principal, because each has its own evidence.
SELECT seq, verdict FROM admission
WHERE key = ?1 AND verdict IN ('revision', 'conflict') AND digest = ?2
  AND (?3 IS NULL OR principal = ?3)
ORDER BY seq DESC LIMIT 1;
