-- Inserts effects in their initial state, in the commit of their admissions.
INSERT INTO effect (seq, kind, plan, state, attempt, epoch, evidence, reply_status, reply,
                    changed_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                     $7::text[], $8::bigint[], $9::bytea[], $10::bigint[]);
