-- Whether an attempt is taken.
SELECT 1 FROM sr_publication WHERE run_id = $1 AND attempt = $2
