-- Number of publications per state.
SELECT state, count(*) FROM record_publication WHERE door = ?1 GROUP BY state ORDER BY state;
