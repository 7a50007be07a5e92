-- The number up to which every file is on stable storage, and the newest number.
SELECT coalesce((SELECT value FROM meta WHERE name = 'artifacts_synced'), 0) AS synced_to,
       coalesce((SELECT max(n) FROM issued), 0) AS newest;
