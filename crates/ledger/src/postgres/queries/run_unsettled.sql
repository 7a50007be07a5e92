-- Unsettled effects of a run. The first condition is the one of the partial index. PostgreSQL's JSON
-- cannot store the replaced character.
SELECT e.state, count(*) AS count FROM effect e JOIN admission a ON a.seq = e.seq
WHERE e.state <> 'done' AND e.state IN ('withheld', 'intended', 'in_flight', 'ambiguous')
  AND a.door = $1
  AND jsonb_path_query_first(replace(a.facts, '\u0000', '\ufffd')::jsonb, $2::text::jsonpath)
      #>> '{}' = $3::text
GROUP BY e.state;
