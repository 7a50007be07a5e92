-- Effects of a run that are not settled. The first condition is the one of the index.
SELECT e.state, count(*) AS count FROM effect e JOIN admission a ON a.seq = e.seq
WHERE e.state <> 'done' AND e.state IN ('withheld', 'intended', 'in_flight', 'ambiguous')
  AND a.door = ?1 AND json_extract(a.facts, ?2) = ?3
GROUP BY e.state;
