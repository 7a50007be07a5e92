-- Records per date since a time, and how many of them have no event of these sources.
SELECT r.date, count(*),
       sum(NOT EXISTS (SELECT 1 FROM record_event e
                       WHERE e.record_id = r.record_id AND instr(?3, ' ' || e.source || ' ') > 0))
FROM record r
WHERE r.door = ?1 AND coalesce(r.event_time, 0) >= ?2 AND r.date IS NOT NULL
GROUP BY 1 ORDER BY 1;
