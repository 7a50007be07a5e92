-- Ambiguous publishes after the place ?1 and up to ?2 that are not told in both documents, and open
-- documents that tell of an ambiguity that is none.
SELECT e.seq AS seq, 'its publish is ambiguous, and no open ' || k.kind || ' says so' AS what
FROM effect e JOIN admission a ON a.seq = e.seq
CROSS JOIN (SELECT 'receipt' AS kind UNION ALL SELECT 'quarantine') AS k
WHERE e.seq > ?1 AND e.seq <= ?2 AND e.state = 'ambiguous' AND a.door = 'ingestion-gate'
  AND NOT EXISTS (SELECT 1 FROM issued i
                  WHERE i.of IS NOT NULL AND i.of = e.seq AND i.kind = k.kind
                    AND i.decision = 'QUARANTINE' AND i.reason LIKE 'PUBLISH_AMBIGUOUS%'
                    AND i.superseded_by IS NULL AND i.released_how IS NULL)
UNION ALL
SELECT i.of, i.kind || ' ' || i.id || ' says that its publish is ambiguous, it is '
       || coalesce(e.state, 'none')
FROM issued i LEFT JOIN effect e ON e.seq = i.of
WHERE i.kind <> 'governance' AND i.of > ?1 AND i.of <= ?2 AND i.reason LIKE 'PUBLISH_AMBIGUOUS%'
  AND i.superseded_by IS NULL AND i.released_how IS NULL AND e.state IS NOT 'ambiguous'
ORDER BY 1;
