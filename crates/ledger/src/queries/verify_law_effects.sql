-- Effects after the seq $1 and up to $2 whose state is not the end of their history, and missing or
-- unexpected ones.
SELECT e.seq AS seq,
       'its effect is ' || e.state || ' in attempt ' || e.attempt || ', its history ends with '
       || coalesce(h.what || ' in attempt ' || h.attempt, 'nothing')
       || CASE WHEN h.what = e.state AND h.attempt = e.attempt THEN ' and other evidence' ELSE '' END AS what
FROM effect e
LEFT JOIN effect_history h ON h.seq = e.seq
 AND h.n = (SELECT max(m.n) FROM effect_history m WHERE m.seq = e.seq AND m.what <> 'evidence')
WHERE e.seq > $1 AND e.seq <= $2
  AND (h.what IS DISTINCT FROM e.state OR h.attempt IS DISTINCT FROM e.attempt OR h.evidence IS DISTINCT FROM e.evidence)
UNION ALL
SELECT h.seq, 'the history of its effect has ' || count(*) || ' lines, the last has number ' || max(h.n)
FROM effect_history h WHERE h.seq > $1 AND h.seq <= $2
GROUP BY h.seq HAVING count(*) <> max(h.n)
UNION ALL
SELECT h.seq, 'there is a history of an effect, but no effect'
FROM effect_history h
WHERE h.seq > $1 AND h.seq <= $2 AND h.n = 1
  AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.seq = h.seq)
UNION ALL
SELECT e.seq, 'there is an effect, but no fresh admission that caused it'
FROM effect e
WHERE e.seq > $1 AND e.seq <= $2
  AND NOT EXISTS (SELECT 1 FROM admission a WHERE a.seq = e.seq AND a.verdict = 'fresh')
UNION ALL
SELECT a.seq, 'an admission of this door publishes, and has no effect'
FROM admission a
WHERE a.seq > $1 AND a.seq <= $2 AND a.door = 'ingestion-gate' AND a.verdict = 'fresh'
  AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.seq = a.seq)
ORDER BY 1;
