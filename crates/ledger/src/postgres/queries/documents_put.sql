-- Upserts projected documents after this commit's events.
INSERT INTO document (projection, entity, seq, text)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
ON CONFLICT (projection, entity) DO UPDATE SET seq = excluded.seq, text = excluded.text;
