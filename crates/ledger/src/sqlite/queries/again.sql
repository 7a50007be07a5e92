-- A revision or conflict already kept under this key with this very content.
SELECT seq, verdict FROM admission
WHERE key = ?1 AND verdict IN ('revision', 'conflict') AND digest = ?2
ORDER BY seq DESC LIMIT 1;
