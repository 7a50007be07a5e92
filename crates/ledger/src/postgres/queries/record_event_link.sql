-- Updates the links of events.
UPDATE record_event e
SET number = t.number, state = t.state, link_status = t.link_status, reason_code = t.reason_code,
    confidence = t.confidence, record_id = t.record_id, link = t.link
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[])
     AS t (seq, number, state, link_status, reason_code, confidence, record_id, link)
WHERE e.seq = t.seq;
