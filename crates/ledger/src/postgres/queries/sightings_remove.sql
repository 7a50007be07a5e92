-- All their copies go.
DELETE FROM sighting WHERE admission = ANY ($2::bigint[]) AND seq > $1;
