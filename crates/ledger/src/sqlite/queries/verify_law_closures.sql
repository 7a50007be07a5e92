-- Closures without a run, incomplete closed ones, and those whose text does not match the row, the run and the
-- receipts. Copies arrive after a run is closed too, so their numbers may only have grown.
SELECT CAST(NULL AS BIGINT) AS seq, 'the closure of ' || c.platform_run_id || ' has no run' AS what
FROM run_closure c WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.platform_run_id = c.platform_run_id)
UNION ALL
SELECT NULL, 'the closure of ' || c.platform_run_id || ' is closed, but has no document'
FROM run_closure c
WHERE c.closed_at IS NOT NULL
  AND (c.path IS NULL OR c.text IS NULL OR CASE WHEN json_valid(c.text) THEN json_extract(c.text, '$.platform_run_id') END IS NOT c.platform_run_id)
UNION ALL
SELECT NULL, 'the closure of ' || run || ' is not what its row and its receipts give: ' || wrong
FROM (
  SELECT c.platform_run_id AS run, CASE
    WHEN json_extract(c.text, '$.state') IS NOT 'closed' THEN 'state'
    WHEN json_extract(c.text, '$.closed_by') IS NOT c.begun_by THEN 'closed_by'
    WHEN json_extract(c.text, '$.reason') IS NOT c.begun_why THEN 'reason'
    WHEN substr(json_extract(c.text, '$.closed_at_utc'), 1, 19)
         IS NOT strftime('%Y-%m-%dT%H:%M:%S', c.closed_at / 1000, 'unixepoch') THEN 'closed_at_utc'
    WHEN json_extract(c.text, '$.ingress.admit')
         IS NOT (SELECT count(*) FROM issued i
                 WHERE i.run = c.platform_run_id AND i.kind = 'receipt' AND i.decision = 'ADMIT')
         THEN 'ingress.admit'
    WHEN json_extract(c.text, '$.ingress.duplicate')
         > (SELECT count(*) FROM issued i
            WHERE i.run = c.platform_run_id AND i.kind = 'receipt' AND i.decision = 'DUPLICATE')
         THEN 'ingress.duplicate'
    WHEN json_extract(c.text, '$.ingress.quarantine')
         > (SELECT count(*) FROM issued i
            WHERE i.run = c.platform_run_id AND i.kind = 'receipt' AND i.decision = 'QUARANTINE')
         THEN 'ingress.quarantine'
    WHEN json_extract(c.text, '$.deliveries')
         > (SELECT r.deliveries FROM run r WHERE r.platform_run_id = c.platform_run_id)
         THEN 'deliveries'
    WHEN json_extract(c.text, '$.ingress.admit')
         IS NOT (SELECT coalesce(sum(json_extract(o.value, '$.admit')), 0)
                 FROM json_each(c.text, '$.outputs') o) THEN 'outputs'
    WHEN EXISTS (SELECT 1 FROM issued i
                 JOIN json_each(c.text, '$.outputs') o ON o.key = i.event_type
                 WHERE i.run = c.platform_run_id AND i.kind = 'receipt' AND i.decision = 'ADMIT'
                 GROUP BY o.key HAVING count(*) <> max(json_extract(o.value, '$.admit')))
         THEN 'outputs'
  END AS wrong
  FROM run_closure c WHERE c.closed_at IS NOT NULL AND json_valid(c.text)
) WHERE wrong IS NOT NULL
ORDER BY 2;
