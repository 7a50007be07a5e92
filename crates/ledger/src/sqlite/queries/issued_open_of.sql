-- Open quarantines of one admission: neither void nor released.
SELECT n, run, kind, reason FROM issued
WHERE of = ?1 AND decision = 'QUARANTINE' AND superseded_by IS NULL AND released_at IS NULL;
