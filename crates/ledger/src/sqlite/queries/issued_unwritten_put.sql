-- Whether the file of a document is missing.
UPDATE issued SET is_unwritten = ?1 WHERE n = ?2 AND is_unwritten <> ?1;
