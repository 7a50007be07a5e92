-- The files of a run show this version.
UPDATE sr_run SET shown = max(shown, ?2) WHERE run_id = ?1
