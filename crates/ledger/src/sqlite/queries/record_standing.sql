-- Publication progress of a record.
SELECT revision, offered, state FROM record WHERE record_id = ?1;
