-- A revision or conflict already kept under this key with this very content; of one principal only
-- where keys belong to principals, because each has its own evidence.
SELECT seq, verdict FROM admission
WHERE key = ?1 AND verdict IN ('revision', 'conflict') AND digest = ?2
  AND (?3 IS NULL OR principal = ?3)
ORDER BY seq DESC LIMIT 1;
