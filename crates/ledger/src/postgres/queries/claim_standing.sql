-- How far a stream was handed out and goes; how many places are held at $2, how many are free again,
-- and when the next one becomes free. A lease that reaches beyond $3 holds nothing.
SELECT coalesce((SELECT head FROM claim_head WHERE door = $1), 0) AS head,
       coalesce((SELECT a.seq FROM admission a
                 WHERE a.door = $1 AND a.verdict IN ('fresh', 'revision')
                   AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0'))
                 ORDER BY a.seq DESC LIMIT 1), 0) AS newest,
       count(*) FILTER (WHERE expires_at > $2 AND expires_at <= $3 AND lease IS NOT NULL) AS held,
       count(*) FILTER (WHERE expires_at <= $2 OR expires_at > $3 OR lease IS NULL) AS free,
       min(expires_at) FILTER (WHERE expires_at > $2 AND expires_at <= $3) AS free_at
FROM claim WHERE door = $1;
