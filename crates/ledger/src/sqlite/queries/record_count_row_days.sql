-- Rows from script messages per day (UTC) since a time, and how many of them belong to no record. Two
-- messages of one round share a row.
SELECT date(captured_at / 1000, 'unixepoch'), count(*), sum(round_id IS NULL)
FROM lua_round_teams WHERE captured_at >= ?1
GROUP BY 1 ORDER BY 1;
