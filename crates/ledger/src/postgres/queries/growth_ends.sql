-- End of the newest partition of each table.
SELECT p.parent, coalesce(max(g.hi), 0) AS hi
FROM (VALUES ('body'), ('sighting')) AS p(parent) LEFT JOIN growth g ON g.parent = p.parent
GROUP BY p.parent ORDER BY p.parent;
