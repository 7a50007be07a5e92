-- Records whether the file of a document is missing.
UPDATE issued SET is_unwritten = ?2 WHERE n = ?1 AND is_unwritten <> ?2;
