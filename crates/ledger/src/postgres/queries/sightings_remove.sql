-- Deletes all their sightings.
DELETE FROM sighting WHERE admission = ANY ($1::bigint[]) AND seq > $2;
