-- Updates the state of a publication.
UPDATE record_publication
SET state = $2, attempt = $3, epoch = $4, evidence = $5, reason_code = $6, changed_at = $7
WHERE n = $1;
