-- Closures without a run, incomplete closed ones, and those whose text does not match the row, the run and the
-- receipts. Copies arrive after a run is closed too, so their numbers may only have grown.
SELECT CAST(NULL AS BIGINT) AS seq, 'the closure of ' || c.platform_run_id || ' has no run' AS what
FROM run_closure c WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.platform_run_id = c.platform_run_id)
UNION ALL
SELECT NULL, 'the closure of ' || c.platform_run_id || ' is closed, but has no document'
FROM run_closure c
WHERE c.closed_at IS NOT NULL
  AND (c.path IS NULL OR c.text IS NULL OR (replace(c.text, '\u0000', '\ufffd')::jsonb ->> 'platform_run_id') IS DISTINCT FROM c.platform_run_id)
UNION ALL
SELECT NULL, 'the closure of ' || run || ' is not what its row and its receipts give: ' || wrong
FROM (
  SELECT c.platform_run_id AS run, CASE
    WHEN c.body ->> 'state' IS DISTINCT FROM 'closed' THEN 'state'
    WHEN c.body ->> 'closed_by' IS DISTINCT FROM c.begun_by THEN 'closed_by'
    WHEN c.body ->> 'reason' IS DISTINCT FROM c.begun_why THEN 'reason'
    WHEN left(c.body ->> 'closed_at_utc', 19) IS DISTINCT FROM
         to_char(to_timestamp(c.closed_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
         THEN 'closed_at_utc'
    WHEN (c.body #>> '{ingress,admit}')::numeric IS DISTINCT FROM c.admit THEN 'ingress.admit'
    WHEN (c.body #>> '{ingress,duplicate}')::numeric > c.duplicate THEN 'ingress.duplicate'
    WHEN (c.body #>> '{ingress,quarantine}')::numeric > c.quarantine THEN 'ingress.quarantine'
    WHEN (c.body ->> 'deliveries')::numeric
         > (SELECT r.deliveries FROM run r WHERE r.platform_run_id = c.platform_run_id)
         THEN 'deliveries'
    WHEN c.admit IS DISTINCT FROM (SELECT coalesce(sum((o.value ->> 'admit')::numeric), 0)
                                   FROM jsonb_each(c.outputs) o) THEN 'outputs'
    WHEN EXISTS (SELECT 1 FROM issued i JOIN jsonb_each(c.outputs) o ON o.key = i.event_type
                 WHERE i.run = c.platform_run_id AND i.kind = 'receipt' AND i.decision = 'ADMIT'
                 GROUP BY o.key HAVING count(*) <> max((o.value ->> 'admit')::numeric))
         THEN 'outputs'
  END AS wrong
  FROM (
    SELECT k.*, CASE WHEN jsonb_typeof(k.body -> 'outputs') = 'object' THEN k.body -> 'outputs'
                     ELSE '{}' END AS outputs,
           (SELECT count(*) FROM issued i WHERE i.run = k.platform_run_id AND i.kind = 'receipt'
            AND i.decision = 'ADMIT') AS admit,
           (SELECT count(*) FROM issued i WHERE i.run = k.platform_run_id AND i.kind = 'receipt'
            AND i.decision = 'DUPLICATE') AS duplicate,
           (SELECT count(*) FROM issued i WHERE i.run = k.platform_run_id AND i.kind = 'receipt'
            AND i.decision = 'QUARANTINE') AS quarantine
    FROM (SELECT r.*, replace(r.text, '\u0000', '\ufffd')::jsonb AS body FROM run_closure r
          WHERE r.closed_at IS NOT NULL AND r.text IS NOT NULL) k
  ) c
) w WHERE wrong IS NOT NULL
ORDER BY 2;
