-- Events of the records of the door $4 after $1 and up to $2, with their input fields and their origins.
SELECT v.seq, v.source, v.grp, v.number, v.event_time, v.hard_key, v.state, v.link_status,
       v.reason_code, v.confidence, v.record_id, v.drift, v.head, v.link, t.fields, a.facts,
       b.bytes AS body,
       v.seq <= coalesce((SELECT value FROM meta WHERE name = 'older_round_fields_until'), 0)
         AS has_older_fields
FROM record_event v
LEFT JOIN record_told t ON t.seq = v.seq
LEFT JOIN admission a ON a.seq = v.seq
LEFT JOIN body b ON b.seq = v.seq
WHERE v.seq > $1 AND v.seq <= $2 AND v.door = $4
ORDER BY v.seq LIMIT $3;
