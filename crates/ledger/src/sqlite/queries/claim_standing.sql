-- How many places are held at ?2, how many are free again, and when the next one becomes free. A lease
-- that reaches beyond ?3 holds nothing.
SELECT count(*) FILTER (WHERE expires_at > ?2 AND expires_at <= ?3 AND lease IS NOT NULL),
       count(*) FILTER (WHERE expires_at <= ?2 OR expires_at > ?3 OR lease IS NULL),
       min(expires_at) FILTER (WHERE expires_at > ?2 AND expires_at <= ?3)
FROM claim WHERE door = ?1;
