-- The events of a record, in ledger order.
SELECT seq, source, received_at, seen_at, state, link_status, reason_code, confidence, record_id,
       drift, head, link
FROM record_event WHERE record_id = $1 ORDER BY seq LIMIT $2;
