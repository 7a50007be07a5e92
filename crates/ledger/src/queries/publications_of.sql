-- The publications of a record, the newest first.
SELECT * FROM record_publication WHERE record_id = $1 AND door = $2 ORDER BY revision DESC LIMIT $3;
