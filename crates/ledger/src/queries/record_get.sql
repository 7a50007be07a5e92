-- One record.
SELECT record_id, grp, number, date, time, event_time, state, revision, opened_at, changed_at,
       fingerprints
FROM record WHERE record_id = $1 AND door = $2;
