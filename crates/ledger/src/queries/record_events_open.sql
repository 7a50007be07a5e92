-- Events after a seq without a certain link to a record, or with missing rows.
SELECT seq, source, received_at, seen_at, state, link_status, reason_code, confidence, record_id,
       drift, head, link
FROM record_event
WHERE door = $1 AND seq > $2 AND (link_status <> 'linked_round_id' OR drift IS NOT NULL)
ORDER BY seq LIMIT $3;
