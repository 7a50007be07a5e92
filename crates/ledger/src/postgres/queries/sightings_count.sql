-- How many copies there are of each; a copy comes after what it is a copy of, which leaves out the
-- partitions before $1.
SELECT admission, count(*) AS count FROM sighting
WHERE admission = ANY ($2::bigint[]) AND seq > $1 GROUP BY admission;
