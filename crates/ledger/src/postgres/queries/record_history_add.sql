-- More steps, each after those that its event has.
INSERT INTO record_history (seq, n, at, attempt, from_state, to_state, source, fingerprint_kind,
                            round_fingerprint, link_status, confidence, reason_code, record_id)
SELECT t.seq,
       coalesce((SELECT max(h.n) FROM record_history h WHERE h.seq = t.seq), 0)
         + row_number() OVER (PARTITION BY t.seq ORDER BY t.place),
       t.at, t.attempt, t.from_state, t.to_state, t.source, t.fingerprint_kind, t.round_fingerprint,
       t.link_status, t.confidence, t.reason_code, t.record_id
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[]) WITH ORDINALITY
     AS t (seq, at, attempt, from_state, to_state, source, fingerprint_kind, round_fingerprint,
           link_status, confidence, reason_code, record_id, place);
