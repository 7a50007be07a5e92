-- Inserts documents, in the commit of their decisions.
INSERT INTO issued (n, kind, run, id, identity, decision, reason, seq, of, event_id, event_type, at,
                    path, text, superseded_by, released_how, released_by, released_why, released_at,
                    epoch)
SELECT u.*, $20::bigint
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::text[],
            $14::text[], $15::bigint[], $16::text[], $17::text[], $18::text[], $19::bigint[]) u;
