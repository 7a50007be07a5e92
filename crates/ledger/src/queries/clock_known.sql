-- Newest trusted time, and number of clock confirmations.
SELECT (SELECT value FROM meta WHERE name = 'trusted_at') AS trusted_at,
       (SELECT count(*) FROM clock_confirmation) AS confirmations;
