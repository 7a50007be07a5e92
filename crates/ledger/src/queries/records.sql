-- Records, newest first, filtered by group, day and state if given; before a cursor.
SELECT record_id, grp, number, date, time, event_time, state, revision, opened_at, changed_at
FROM record
WHERE door = $1 AND (CAST($2 AS TEXT) IS NULL OR grp = $2) AND (CAST($3 AS TEXT) IS NULL OR date = $3)
  AND (CAST($4 AS TEXT) IS NULL OR state = $4)
  AND (CAST($5 AS BIGINT) IS NULL OR coalesce(event_time, 0) < $5
       OR (coalesce(event_time, 0) = $5 AND record_id < $6))
ORDER BY coalesce(event_time, 0) DESC, record_id DESC LIMIT $7;
