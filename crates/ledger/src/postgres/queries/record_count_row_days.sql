-- Rows of the script's messages day by day (UTC) since a time, and those that belong to no record: two
-- messages of one round are one row.
SELECT to_char(to_timestamp(captured_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, count(*) AS rows,
       count(*) FILTER (WHERE round_id IS NULL) AS unlinked
FROM lua_round_teams WHERE captured_at >= $1
GROUP BY 1 ORDER BY 1;
