-- The files of a run show this version.
UPDATE sr_run SET shown = CASE WHEN $2 > shown THEN $2 ELSE shown END WHERE run_id = $1
