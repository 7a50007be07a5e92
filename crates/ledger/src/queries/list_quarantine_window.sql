-- Like list_window.sql, for list_quarantine.sql.
SELECT seq FROM admission
WHERE seq > $1 AND verdict IN ('conflict', 'refused') ORDER BY seq LIMIT 1 OFFSET $2;
