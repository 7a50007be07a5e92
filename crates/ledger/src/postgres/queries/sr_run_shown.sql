-- The files of a run show this version.
UPDATE sr_run SET shown = greatest(shown, $2) WHERE run_id = $1
