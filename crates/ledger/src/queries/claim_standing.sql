-- Progress of a stream: its head and newest seq; entries leased at $2, entries free again, and when
-- the next lease expires. A lease beyond $3 counts as expired.
SELECT coalesce((SELECT head FROM claim_head WHERE door = $1), 0) AS head,
       coalesce((SELECT a.seq FROM admission a
                 WHERE a.door = $1 AND a.verdict IN ('fresh', 'revision')
                   AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0'))
                 ORDER BY a.seq DESC LIMIT 1), 0) AS newest,
       count(*) FILTER (WHERE expires_at > $2 AND expires_at <= $3 AND lease IS NOT NULL) AS held,
       count(*) FILTER (WHERE expires_at <= $2 OR expires_at > $3 OR lease IS NULL) AS free,
       min(expires_at) FILTER (WHERE expires_at > $2 AND expires_at <= $3) AS free_at
FROM claim WHERE door = $1;
