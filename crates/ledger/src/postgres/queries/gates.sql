-- The newest start of each gate: live gates first, then by last activity.
SELECT owner, epoch, started_at, (extract(epoch FROM alive_until) * 1000)::bigint AS lease_until,
       admit_lease_holds(alive_until, lease_ms) AS is_alive
FROM (SELECT DISTINCT ON (owner) * FROM gate ORDER BY owner, epoch DESC) AS newest
ORDER BY is_alive DESC, alive_until DESC LIMIT 100;
