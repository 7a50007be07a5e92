-- All their copies go.
DELETE FROM sighting WHERE admission = ANY ($1::bigint[]) AND seq > $2;
