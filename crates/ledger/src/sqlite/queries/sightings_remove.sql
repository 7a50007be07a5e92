-- All its copies go.
DELETE FROM sighting WHERE admission = ?2 AND seq > ?1;
