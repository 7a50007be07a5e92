-- The documents that have these names. Each is looked for by itself, so that the index serves it
-- whatever the planner thinks of the table.
SELECT i.* FROM unnest($1::text[], $2::text[], $3::text[]) AS u(id, run, kind)
CROSS JOIN LATERAL (
  SELECT * FROM issued WHERE issued.id = u.id COLLATE "C" AND issued.run = u.run COLLATE "C"
    AND issued.kind = u.kind COLLATE "C" OFFSET 0
) i;
