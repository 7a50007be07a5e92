-- The receipt and the record of one quarantine have the same id.
SELECT n, run, kind, NULL AS reason FROM issued
WHERE id = ?1 AND run = ?2 AND decision = 'QUARANTINE' AND superseded_by IS NULL
  AND released_at IS NULL;
