-- Whether the files of documents are missing.
UPDATE issued SET is_unwritten = $1 WHERE n = ANY($2::bigint[]) AND is_unwritten <> $1;
