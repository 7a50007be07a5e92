-- How much there is. Counts come from the ends of append-only tables, not from scanning them.
SELECT (SELECT value FROM meta WHERE name = 'admissions'),
       (SELECT value FROM meta WHERE name = 'sightings'),
       (SELECT value FROM meta WHERE name = 'last_seq'),
       (SELECT received_at FROM admission ORDER BY seq LIMIT 1);
