-- Arrival of the newest admission and the newest sighting. By seq and not by time, so that an old
-- row with a wrong clock does not matter.
SELECT max(received_at) AS newest_at FROM (
  SELECT received_at FROM (SELECT received_at FROM admission ORDER BY seq DESC LIMIT 1) AS a
  UNION ALL
  SELECT received_at FROM (SELECT received_at FROM sighting ORDER BY seq DESC LIMIT 1) AS s
) AS newest;
