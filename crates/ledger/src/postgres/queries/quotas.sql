-- Used refusal quota of these producers.
SELECT q.door, q.principal, q.rows, q.bytes FROM refusal_quota q
JOIN (SELECT DISTINCT door, principal FROM unnest($1::text[], $2::text[]) AS u(door, principal)) w
  ON q.door = w.door AND q.principal = w.principal;
