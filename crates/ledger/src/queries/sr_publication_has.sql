-- Whether a publication attempt exists.
SELECT 1 FROM sr_publication WHERE run_id = $1 AND attempt = $2
