-- Whether another document has this id.
SELECT 1 FROM issued WHERE id = ?1 AND run = ?2 AND kind = ?3 AND identity <> ?4;
