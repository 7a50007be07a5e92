-- The number after which gates that are gone may have left files unwritten, and the newest number.
SELECT coalesce((SELECT min(g.synced_to) FROM gate g
                 WHERE g.issued_to > g.synced_to AND g.alive_until <= clock_timestamp()),
                h.last_issued) AS synced_to,
       h.last_issued AS newest
FROM head h;
