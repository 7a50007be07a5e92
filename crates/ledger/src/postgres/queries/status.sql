-- Counts of the ledger, from counters and the ends of tables instead of scans.
SELECT h.admissions, h.sightings, h.last_seq, h.keys,
       (SELECT received_at FROM admission ORDER BY seq LIMIT 1) AS oldest_at,
       (SELECT received_at FROM admission
        WHERE seq = (SELECT seq FROM body ORDER BY seq LIMIT 1)) AS oldest_body_at,
       (SELECT value FROM meta WHERE name = 'retain_ms') AS retain_ms,
       (SELECT value FROM meta WHERE name = 'forgotten_to') AS forgotten_to,
       (SELECT value FROM meta WHERE name = 'removed_admissions') AS removed_admissions,
       (SELECT value FROM meta WHERE name = 'removed_sightings') AS removed_sightings,
       (SELECT value FROM meta WHERE name = 'removed_bodies') AS removed_bodies,
       (SELECT value FROM meta WHERE name = 'removed_keys') AS removed_keys,
       (SELECT value FROM meta WHERE name = 'trusted_at') AS trusted_at,
       (SELECT sum(rows)::bigint FROM refusal_quota) AS refusals,
       (SELECT sum(bytes)::bigint FROM refusal_quota) AS refusal_bytes
FROM head h;
