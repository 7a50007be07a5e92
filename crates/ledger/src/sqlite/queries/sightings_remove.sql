-- Its sightings go first, a slice at a time: there may be any number of them.
DELETE FROM sighting WHERE seq IN (SELECT seq FROM sighting WHERE admission = ?1 LIMIT ?2);
