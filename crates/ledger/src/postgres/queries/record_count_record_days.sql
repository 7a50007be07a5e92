-- Records by their own day since a time, and how many of them have no event of these sources.
SELECT r.date AS day, count(*) AS records,
       count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM record_event e
                                          WHERE e.record_id = r.record_id AND e.source = ANY($3))) AS without
FROM record r
WHERE r.door = $1 AND coalesce(r.event_time, 0) >= $2 AND r.date IS NOT NULL
GROUP BY 1 ORDER BY 1;
