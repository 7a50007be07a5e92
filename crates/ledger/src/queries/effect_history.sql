-- History of one effect.
SELECT * FROM effect_history WHERE seq = $1 ORDER BY n;
