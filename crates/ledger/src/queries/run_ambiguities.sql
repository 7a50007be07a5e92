-- Effects of a run that were ambiguous at some time, by the operator's finding. Found through their
-- quarantine records, which are indexed by run.
SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM effect_history h
                         WHERE h.seq = a.seq AND h.what = 'done' AND h.who IS NOT NULL)) AS found,
       count(*) FILTER (WHERE EXISTS (SELECT 1 FROM effect_history h
                         WHERE h.seq = a.seq AND h.what = 'refused' AND h.who IS NOT NULL)) AS absent,
       count(*) FILTER (WHERE EXISTS (SELECT 1 FROM effect e
                         WHERE e.seq = a.seq AND e.state = 'refused')) AS never_arrived
FROM (SELECT DISTINCT i.of AS seq FROM issued i
      WHERE i.kind = 'quarantine' AND i.run = $1 AND i.of IS NOT NULL
        AND EXISTS (SELECT 1 FROM effect_history h
                    WHERE h.seq = i.of AND h.what = 'ambiguous')) a;
