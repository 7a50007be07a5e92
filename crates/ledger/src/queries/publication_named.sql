-- The publication whose message has this dedupe key.
SELECT * FROM record_publication WHERE door = $1 AND dedupe_key = $2;
