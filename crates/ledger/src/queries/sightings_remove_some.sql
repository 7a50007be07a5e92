-- Some of its copies go.
DELETE FROM sighting WHERE seq IN
  (SELECT seq FROM sighting WHERE admission = $1 AND seq > $1 ORDER BY seq LIMIT $2);
