-- Events of records after the seq $1 and up to $2 with inconsistent rows.
SELECT v.seq AS seq, 'the records have its event, but there is no such admission' AS what
FROM record_event v
WHERE v.seq > $1 AND v.seq <= $2
  AND NOT EXISTS (SELECT 1 FROM admission a
                  WHERE a.seq = v.seq AND a.door = v.door AND a.verdict IN ('fresh', 'revision'))
UNION ALL
SELECT v.seq, 'its event is linked to ' || v.record_id || ', which does not exist'
FROM record_event v
WHERE v.seq > $1 AND v.seq <= $2 AND v.record_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM record r WHERE r.record_id = v.record_id)
UNION ALL
SELECT v.seq, 'the fields of its event are missing'
FROM record_event v
WHERE v.seq > $1 AND v.seq <= $2
  AND NOT EXISTS (SELECT 1 FROM record_told t WHERE t.seq = v.seq)
UNION ALL
SELECT v.seq, 'its event is ' || v.state || ', its history ends with ' || coalesce(h.to_state, 'nothing')
FROM record_event v
LEFT JOIN record_history h ON h.seq = v.seq
 AND h.n = (SELECT max(m.n) FROM record_history m WHERE m.seq = v.seq)
WHERE v.seq > $1 AND v.seq <= $2 AND h.to_state IS DISTINCT FROM v.state
ORDER BY 1;
