-- The receipt and the record of one quarantine have the same id.
SELECT * FROM issued
WHERE id = $1 AND run = $2 AND decision = 'QUARANTINE' AND superseded_by IS NULL
  AND released_at IS NULL
ORDER BY n;
