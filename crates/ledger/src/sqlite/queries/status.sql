-- How much there is. Counts come from counters and from the ends of tables, not from scanning them.
SELECT (SELECT value FROM meta WHERE name = 'admissions') AS admissions,
       (SELECT value FROM meta WHERE name = 'sightings') AS sightings,
       (SELECT value FROM meta WHERE name = 'last_seq') AS last_seq,
       (SELECT received_at FROM admission ORDER BY seq LIMIT 1) AS oldest_at,
       (SELECT received_at FROM admission
        WHERE seq = (SELECT seq FROM body ORDER BY seq LIMIT 1)) AS oldest_body_at,
       (SELECT value FROM meta WHERE name = 'keys') AS keys,
       (SELECT value FROM meta WHERE name = 'retain_ms') AS retain_ms,
       (SELECT value FROM meta WHERE name = 'forgotten_to') AS forgotten_to,
       (SELECT value FROM meta WHERE name = 'removed_admissions') AS removed_admissions,
       (SELECT value FROM meta WHERE name = 'removed_sightings') AS removed_sightings,
       (SELECT value FROM meta WHERE name = 'removed_bodies') AS removed_bodies,
       (SELECT value FROM meta WHERE name = 'removed_keys') AS removed_keys,
       (SELECT value FROM meta WHERE name = 'trusted_at') AS trusted_at,
       (SELECT sum(rows) FROM refusal_quota) AS refusals,
       (SELECT sum(bytes) FROM refusal_quota) AS refusal_bytes;
