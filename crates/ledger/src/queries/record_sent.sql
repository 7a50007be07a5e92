-- A record whose present revision has gone out, or could not.
UPDATE record SET state = $3
WHERE record_id = $1 AND revision = $2 AND state IN ('enriched', 'publish_failed');
