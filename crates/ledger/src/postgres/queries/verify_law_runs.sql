-- Runs whose state or counters do not match their rows. Refusals beyond the quota are only counted,
-- so there may be more deliveries than rows, and never fewer.
WITH document_counts AS (
  SELECT (replace(a.facts, '\u0000', '\ufffd')::jsonb #>> '{envelope,platform_run_id}') AS run, a.seq, a.verdict, e.state
  FROM admission a LEFT JOIN effect e ON e.seq = a.seq WHERE a.door = 'ingestion-gate' AND a.verdict = 'fresh'
  UNION ALL
  SELECT DISTINCT i.run, a.seq, a.verdict, NULL
  FROM issued i JOIN admission a ON a.seq = i.seq
  WHERE i.kind = 'receipt' AND i.run <> '' AND a.verdict = 'refused'
), sums AS (
  SELECT t.run,
         sum(1 + (SELECT count(*) FROM sighting s WHERE s.admission = t.seq)) AS deliveries,
         sum(CASE WHEN t.state = 'in_flight' THEN 1 ELSE 0 END) AS in_flight,
         sum(CASE WHEN t.state = 'ambiguous' THEN 1 ELSE 0 END) AS ambiguous
  FROM document_counts t WHERE t.run IS NOT NULL GROUP BY t.run
), counted AS (
  SELECT r.*, coalesce(s.deliveries, 0) AS d, coalesce(s.in_flight, 0) AS f,
         coalesce(s.ambiguous, 0) AS m, c.closed_at, c.platform_run_id AS closing
  FROM run r LEFT JOIN sums s ON s.run = r.platform_run_id
  LEFT JOIN run_closure c ON c.platform_run_id = r.platform_run_id
)
SELECT CAST(NULL AS BIGINT) AS seq, 'ambiguous of ' || platform_run_id || ' is ' || ambiguous || ', but counted ' || m AS what
FROM counted WHERE ambiguous <> m
UNION ALL
SELECT NULL, 'in_flight of ' || platform_run_id || ' is ' || in_flight || ', but counted ' || f
FROM counted WHERE in_flight <> f
UNION ALL
SELECT NULL, 'deliveries of ' || platform_run_id || ' is ' || deliveries || ', stored are ' || d
FROM counted WHERE deliveries < d
UNION ALL
SELECT NULL, platform_run_id || ' is ' || state || ', but by its closure it is '
       || CASE WHEN closed_at IS NOT NULL THEN 'closed' ELSE 'not closed' END
FROM counted
WHERE (state = 'closed') <> (closed_at IS NOT NULL) OR (state = 'closing' AND closing IS NULL)
   OR state NOT IN ('open', 'closing', 'closed')
UNION ALL
SELECT NULL, s.run || ' is named by events, but does not exist'
FROM sums s WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.platform_run_id = s.run)
ORDER BY 2;
