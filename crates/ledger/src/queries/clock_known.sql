-- The newest time that is trusted, and how often a person has vouched for a clock.
SELECT (SELECT value FROM meta WHERE name = 'trusted_at') AS trusted_at,
       (SELECT count(*) FROM clock_confirmation) AS confirmations;
