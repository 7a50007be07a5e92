-- Number of records per state.
SELECT state, count(*) FROM record WHERE door = $1 GROUP BY state ORDER BY state;
