-- Records whether the rows of events could be stored.
UPDATE record_event e SET drift = t.drift
FROM unnest($1::bigint[], $2::text[]) AS t (seq, drift)
WHERE e.seq = t.seq AND e.drift IS DISTINCT FROM t.drift;
