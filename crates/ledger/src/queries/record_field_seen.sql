-- Updates the field with the last time a source sent a record, if it is of that source.
UPDATE record_field SET value = $4
WHERE record_id = $1 AND name = $2 AND source = $3 AND value < $4;
