-- Events with a hard key, of one group or of none; of any group if $3 is empty.
SELECT head, link, seen_at, drift FROM record_event
WHERE door = $1 AND hard_key = $2 AND ($3 = '' OR grp = $3 OR grp = '') ORDER BY seq LIMIT $4;
