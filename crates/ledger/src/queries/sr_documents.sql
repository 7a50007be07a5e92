-- Every document of a run.
SELECT kind, path, text FROM sr_run_document WHERE run_id = $1 ORDER BY kind
