-- Records, newest first, filtered by group, day and state if given; before a cursor.
SELECT record_id, grp, number, date, time, event_time, state, revision, opened_at, changed_at
FROM record
WHERE door = $1 AND ($2::text IS NULL OR grp = $2) AND ($3::text IS NULL OR date = $3)
  AND ($4::text IS NULL OR state = $4)
  AND ($5::bigint IS NULL OR coalesce(event_time, 0) < $5
       OR (coalesce(event_time, 0) = $5 AND record_id < $6))
ORDER BY coalesce(event_time, 0) DESC, record_id DESC LIMIT $7;
