-- Number up to which all files are on stable storage, and the newest number.
SELECT coalesce((SELECT min(g.synced_to) FROM gate g WHERE g.issued_to > g.synced_to),
                h.last_issued) AS synced_to,
       h.last_issued AS newest
FROM head h;
