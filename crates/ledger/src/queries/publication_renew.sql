-- Begins another attempt at a revision that was found not published.
UPDATE record_publication
SET topic = $2, digest = $3, members = $4, state = $5, attempt = $6, epoch = $7, evidence = NULL,
    reason_code = NULL, begun_at = $8, changed_at = $8
WHERE n = $1;
