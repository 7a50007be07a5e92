-- As list_window.sql, of what list_quarantine.sql walks.
SELECT seq FROM admission
WHERE seq > $1 AND verdict IN ('conflict', 'refused') ORDER BY seq LIMIT 1 OFFSET $2;
