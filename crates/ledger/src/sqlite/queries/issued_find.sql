-- The document with this id.
SELECT * FROM issued WHERE id = ?1 AND run = ?2 AND kind = ?3;
