-- Records of the door $1 after the id $2.
SELECT record_id, grp, number, date, time, event_time, state, fingerprints FROM record
WHERE door = $1 AND record_id > $2 ORDER BY record_id LIMIT $3;
