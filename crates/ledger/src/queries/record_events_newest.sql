-- The newest events.
SELECT seq, source, received_at, seen_at, state, link_status, reason_code, confidence, record_id,
       drift, head, link
FROM record_event WHERE door = $1 ORDER BY received_at DESC, seq DESC LIMIT $2;
