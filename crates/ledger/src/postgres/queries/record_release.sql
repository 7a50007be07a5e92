-- A revision that did not go out may be handed over again, if it is still the newest.
UPDATE record SET offered = revision - 1, unoffered_at = $3
WHERE record_id = $1 AND revision = $2 AND offered = $2;
