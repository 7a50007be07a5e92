-- Releases a quarantine with the name of the operator; only once.
UPDATE issued SET released_how = ?2, released_by = ?3, released_why = ?4, released_at = ?5
WHERE n = ?1 AND released_at IS NULL;
