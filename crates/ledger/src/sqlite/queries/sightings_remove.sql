-- Deletes a slice of an admission's sightings, before the admission itself.
DELETE FROM sighting WHERE seq IN (SELECT seq FROM sighting WHERE admission = ?1 LIMIT ?2);
