-- Effects settled by an operator.
SELECT DISTINCT seq FROM effect_history WHERE what = 'done' AND who IS NOT NULL ORDER BY seq;
