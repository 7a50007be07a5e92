-- Admissions of the inbox's door after ?1, up to ?2, with their inbox rows.
SELECT a.seq, i.event_id IS NOT NULL AS has_row,
       b.bytes IS NOT NULL AND i.payload IS NOT NULL AND CAST(b.bytes AS TEXT) <> i.payload AS differs
FROM admission a
LEFT JOIN body b ON b.seq = a.seq
LEFT JOIN event_inbox i
  ON i.event_id = CASE WHEN json_valid(a.facts) THEN json_extract(a.facts, '$.event_id') END
WHERE a.door = 'skyra' AND a.seq > ?1 AND a.seq <= ?2 AND a.verdict = 'fresh'
ORDER BY a.seq LIMIT ?3;
