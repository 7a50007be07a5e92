-- Publication progress of records.
SELECT record_id, revision, offered, state FROM record WHERE record_id = ANY($1::text[]);
