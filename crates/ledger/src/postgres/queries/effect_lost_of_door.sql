-- Effects of a door in flight at gates whose leases have expired, and outcomes without documents, in
-- ledger order after $2. Each half has an index; documented ambiguous effects may be many, and are not
-- scanned.
SELECT e.* FROM (
  SELECT * FROM effect f
  WHERE f.state <> 'done' AND f.state = 'in_flight' AND f.seq > $2 AND NOT EXISTS (
    SELECT 1 FROM gate g WHERE g.epoch = f.epoch AND admit_lease_holds(g.alive_until, g.lease_ms))
  UNION ALL
  SELECT * FROM effect l
  WHERE l.state = 'ambiguous' AND l.epoch IS NOT NULL AND l.seq > $2
) e JOIN admission a ON a.seq = e.seq
WHERE a.door = $1
ORDER BY e.seq LIMIT $3;
