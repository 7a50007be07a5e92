-- How many copies there are of each; a copy comes after what it is a copy of, which leaves out the
-- partitions before $2.
SELECT admission, count(*) AS count FROM sighting
WHERE admission = ANY ($1::bigint[]) AND seq > $2 GROUP BY admission;
