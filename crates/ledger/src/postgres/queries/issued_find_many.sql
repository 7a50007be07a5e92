-- Documents with these names. One lookup per name, so that every plan uses the index.
SELECT i.* FROM unnest($1::text[], $2::text[], $3::text[]) AS u(id, run, kind)
CROSS JOIN LATERAL (
  SELECT * FROM issued WHERE issued.id = u.id COLLATE "C" AND issued.run = u.run COLLATE "C"
    AND issued.kind = u.kind COLLATE "C" OFFSET 0
) i;
