-- When a source last told of a record, where the record says so by that source.
UPDATE record_field SET value = $4
WHERE record_id = $1 AND name = $2 AND source = $3 AND value < $4;
