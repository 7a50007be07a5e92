-- Effects of a run that are not settled. The first condition is the one of the index. The database's
-- JSON cannot hold a NUL: it is compared in the form that parameters have.
SELECT e.state, count(*) AS count FROM effect e JOIN admission a ON a.seq = e.seq
WHERE e.state <> 'done' AND e.state IN ('withheld', 'intended', 'in_flight', 'ambiguous')
  AND a.door = $1
  AND jsonb_path_query_first(replace(a.facts, '\u0000', '\uf8fe0')::jsonb, $2::text::jsonpath)
      #>> '{}' = $3::text
GROUP BY e.state;
