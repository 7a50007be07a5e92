-- How many publications stand where.
SELECT state, count(*) AS publications FROM record_publication WHERE door = $1 GROUP BY state ORDER BY state;
