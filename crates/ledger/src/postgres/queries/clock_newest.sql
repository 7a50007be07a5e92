-- When the newest admission and the newest sighting were received. By place and not by time: a row
-- that a wrong clock wrote long ago says nothing.
SELECT max(received_at) FROM (
  SELECT received_at FROM (SELECT received_at FROM admission ORDER BY seq DESC LIMIT 1) AS a
  UNION ALL
  SELECT received_at FROM (SELECT received_at FROM sighting ORDER BY seq DESC LIMIT 1) AS s
) AS newest;
