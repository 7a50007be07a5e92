-- Inserts an event of a source, in the commit of its admission.
INSERT INTO record_event (seq, door, source, grp, number, event_time, hard_key, received_at, seen_at,
                          state, link_status, reason_code, confidence, record_id, head, link)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12, $13, $14, $15);
