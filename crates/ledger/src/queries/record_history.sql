-- Every step of the events of a record, in the order in which they were taken.
SELECT h.seq, h.at, h.attempt, h.from_state, h.to_state, h.source, h.fingerprint_kind,
       h.round_fingerprint, h.link_status, h.confidence, h.reason_code, h.record_id
FROM record_event e JOIN record_history h ON h.seq = e.seq
WHERE e.record_id = $1 ORDER BY h.at, h.seq, h.n LIMIT $2;
