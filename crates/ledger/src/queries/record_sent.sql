-- Records that the current revision was published, or failed to be.
UPDATE record SET state = $3
WHERE record_id = $1 AND revision = $2 AND state IN ('enriched', 'publish_failed');
