-- How many places are held at ?2, how many are free again, and when the next one becomes free.
SELECT count(*) FILTER (WHERE expires_at > ?2 AND lease IS NOT NULL),
       count(*) FILTER (WHERE expires_at <= ?2 OR lease IS NULL),
       min(expires_at) FILTER (WHERE expires_at > ?2)
FROM claim WHERE door = ?1;
