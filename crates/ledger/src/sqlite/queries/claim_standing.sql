-- Progress of a stream: its head and newest seq; entries leased at ?2, entries free again, and when
-- the next lease expires. A lease beyond ?3 counts as expired.
SELECT count(*) FILTER (WHERE expires_at > ?2 AND expires_at <= ?3 AND lease IS NOT NULL),
       count(*) FILTER (WHERE expires_at <= ?2 OR expires_at > ?3 OR lease IS NULL),
       min(expires_at) FILTER (WHERE expires_at > ?2 AND expires_at <= ?3)
FROM claim WHERE door = ?1;
