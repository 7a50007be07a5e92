-- The event was admitted after all.
UPDATE issued SET superseded_by = ?2 WHERE n = ?1;
