-- Releases a revision that was not published, if it is still the newest.
UPDATE record SET offered = revision - 1, unoffered_at = $3
WHERE record_id = $1 AND revision = $2 AND offered = $2;
