-- Records and fields without an event.
SELECT CAST(NULL AS BIGINT) AS seq, 'the record ' || r.record_id || ' is linked to no event' AS what
FROM record r WHERE NOT EXISTS (SELECT 1 FROM record_event v WHERE v.record_id = r.record_id)
UNION ALL
SELECT f.event, 'the field ' || f.name || ' of ' || f.record_id || ' has no record or no event of it'
FROM record_field f
WHERE NOT EXISTS (SELECT 1 FROM record r WHERE r.record_id = f.record_id)
   OR NOT EXISTS (SELECT 1 FROM record_event v WHERE v.seq = f.event AND v.record_id = f.record_id)
ORDER BY 2;
