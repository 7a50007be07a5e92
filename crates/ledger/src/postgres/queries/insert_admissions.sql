-- Inserts in seq order, so that the table only grows at its end.
INSERT INTO admission (epoch, seq, door, principal, verdict, key, digest, received_at, attempt,
                       first, code, message, facts, happened_at)
SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],
                         $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[],
                         $13::text[], $14::bigint[]);
