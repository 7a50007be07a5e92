-- Ambiguous publishes after the seq $1 and up to $2 without both documents, and open documents
-- about an ambiguity that does not exist.
SELECT e.seq AS seq, 'its publish is ambiguous, without an open ' || k.kind AS what
FROM effect e JOIN admission a ON a.seq = e.seq
CROSS JOIN (SELECT 'receipt' AS kind UNION ALL SELECT 'quarantine') AS k
WHERE e.seq > $1 AND e.seq <= $2 AND e.state = 'ambiguous' AND a.door = 'ingestion-gate'
  AND NOT EXISTS (SELECT 1 FROM issued i
                  WHERE i.of IS NOT NULL AND i.of = e.seq AND i.kind = k.kind
                    AND i.decision = 'QUARANTINE' AND i.reason LIKE 'PUBLISH_AMBIGUOUS%'
                    AND i.superseded_by IS NULL AND i.released_how IS NULL)
UNION ALL
SELECT i.of, i.kind || ' ' || i.id || ' is about an ambiguous publish, which is '
       || coalesce(e.state, 'none')
FROM issued i LEFT JOIN effect e ON e.seq = i.of
WHERE i.kind <> 'governance' AND i.of > $1 AND i.of <= $2 AND i.reason LIKE 'PUBLISH_AMBIGUOUS%'
  AND i.superseded_by IS NULL AND i.released_how IS NULL AND e.state IS DISTINCT FROM 'ambiguous'
ORDER BY 1;
