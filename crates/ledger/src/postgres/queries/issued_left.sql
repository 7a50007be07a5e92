-- Number after which dead gates may have left files unwritten, and the newest number.
SELECT coalesce((SELECT min(g.synced_to) FROM gate g
                 WHERE g.issued_to > g.synced_to AND NOT admit_lease_holds(g.alive_until, g.lease_ms)),
                h.last_issued) AS synced_to,
       h.last_issued AS newest
FROM head h;
