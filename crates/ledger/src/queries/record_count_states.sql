-- How many records stand where.
SELECT state, count(*) AS records FROM record WHERE door = $1 GROUP BY state ORDER BY state;
