-- Unsettled effects of gates whose leases have expired, in ledger order after $1. The first condition is
-- the one of the partial index.
SELECT e.* FROM effect e
WHERE e.state <> 'done' AND e.state IN ('intended', 'in_flight') AND e.seq > $1
  AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.epoch = e.epoch AND admit_lease_holds(g.alive_until, g.lease_ms))
ORDER BY e.seq LIMIT $2;
