-- Records the version that the files of a run contain.
UPDATE sr_run SET shown = CASE WHEN $2 > shown THEN $2 ELSE shown END WHERE run_id = $1
