-- Number of sightings per admission. A sighting is newer than its admission, so partitions before $2 are
-- skipped.
SELECT admission, count(*) AS count FROM sighting
WHERE admission = ANY ($1::bigint[]) AND seq > $2 GROUP BY admission;
