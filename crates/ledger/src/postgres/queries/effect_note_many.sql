-- Appends lines to the histories of effects. A new effect has no earlier lines.
INSERT INTO effect_history (seq, n, at, attempt, what, epoch, who, why, evidence)
SELECT u.seq,
       u.nth + CASE WHEN u.is_born THEN 0 ELSE
         (SELECT coalesce(max(h.n), 0) FROM effect_history h WHERE h.seq = u.seq) END,
       u.at, u.attempt, u.what, $10::bigint, u.who, u.why, u.evidence
FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::bigint[], $5::bigint[], $6::text[],
            $7::text[], $8::text[], $9::text[])
     AS u(seq, nth, is_born, at, attempt, what, who, why, evidence);
