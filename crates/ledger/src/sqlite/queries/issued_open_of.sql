-- What is neither void nor released among the quarantines of one admission.
SELECT n, run, kind, reason FROM issued
WHERE of = ?1 AND decision = 'QUARANTINE' AND superseded_by IS NULL AND released_at IS NULL;
