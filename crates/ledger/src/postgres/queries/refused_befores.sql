-- The first stored refusal of the same bytes per door, producer and reason.
SELECT DISTINCT ON (w.at) w.at, a.digest, a.seq
FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[])
     WITH ORDINALITY AS w(digest, door, principal, code, at)
JOIN admission a ON a.digest = w.digest AND a.verdict = 'refused'
  AND a.door = w.door AND a.principal = w.principal AND a.code = w.code
ORDER BY w.at, a.seq;
