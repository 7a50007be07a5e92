-- Marks a quarantine as void, because its event was admitted later.
UPDATE issued SET superseded_by = ?2 WHERE n = ?1;
