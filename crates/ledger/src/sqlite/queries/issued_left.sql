-- The number after which an earlier process may have left files unwritten, and the newest number.
SELECT coalesce((SELECT value FROM meta WHERE name = 'artifacts_synced'), 0) AS synced_to,
       coalesce((SELECT max(n) FROM issued), 0) AS newest;
