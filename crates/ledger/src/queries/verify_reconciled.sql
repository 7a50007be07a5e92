-- Effects that a person has settled.
SELECT DISTINCT seq FROM effect_history WHERE what = 'done' AND who IS NOT NULL ORDER BY seq;
