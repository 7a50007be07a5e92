-- Rows from script messages per day (UTC) since a time, and how many of them belong to no record. Two
-- messages of one round share a row.
SELECT to_char(to_timestamp(captured_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), count(*), count(*) FILTER (WHERE round_id IS NULL)
FROM lua_round_teams WHERE captured_at >= $1
GROUP BY 1 ORDER BY 1;
