-- How much there is. Counts come from counters and from the ends of tables, not from scanning them.
SELECT (SELECT value FROM meta WHERE name = 'admissions'),
       (SELECT value FROM meta WHERE name = 'sightings'),
       (SELECT value FROM meta WHERE name = 'last_seq'),
       (SELECT received_at FROM admission ORDER BY seq LIMIT 1),
       (SELECT received_at FROM admission WHERE seq = (SELECT seq FROM body ORDER BY seq LIMIT 1)),
       (SELECT value FROM meta WHERE name = 'keys'),
       (SELECT value FROM meta WHERE name = 'retain_ms'),
       (SELECT value FROM meta WHERE name = 'forgotten_to'),
       (SELECT value FROM meta WHERE name = 'removed_admissions'),
       (SELECT value FROM meta WHERE name = 'removed_sightings'),
       (SELECT value FROM meta WHERE name = 'removed_bodies'),
       (SELECT value FROM meta WHERE name = 'removed_keys');
