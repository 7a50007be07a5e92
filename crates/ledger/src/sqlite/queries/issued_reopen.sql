-- Reopens a released quarantine.
UPDATE issued SET released_how = NULL, released_by = NULL, released_why = NULL, released_at = NULL
WHERE n = ?1;
