-- Records whether the files of documents are missing.
UPDATE issued SET is_unwritten = $2 WHERE n = ANY($1::bigint[]) AND is_unwritten <> $2;
