-- Publications in flight at gates whose leases have expired. Written so that the partial index is used.
SELECT p.* FROM record_publication p
WHERE p.door = $1 AND p.state <> 'done' AND p.state = 'in_flight'
  AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.epoch = p.epoch AND admit_lease_holds(g.alive_until, g.lease_ms))
ORDER BY p.n LIMIT $2;
