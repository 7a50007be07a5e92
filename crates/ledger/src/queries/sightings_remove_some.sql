-- Deletes some of its sightings.
DELETE FROM sighting WHERE seq IN
  (SELECT seq FROM sighting WHERE admission = $1 AND seq > $1 ORDER BY seq LIMIT $2);
