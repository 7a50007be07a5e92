-- How many copies there are of it, as far as one slice can remove them.
SELECT ?2 AS admission, count(*) AS count
FROM (SELECT 1 FROM sighting WHERE admission = ?2 AND seq > ?1 LIMIT 1024);
