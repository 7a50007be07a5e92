-- What these producers have used of what may be kept of their refusals.
SELECT q.door, q.principal, q.rows, q.bytes FROM refusal_quota q
JOIN (SELECT DISTINCT door, principal FROM unnest($1::text[], $2::text[]) AS u(door, principal)) w
  ON q.door = w.door AND q.principal = w.principal;
