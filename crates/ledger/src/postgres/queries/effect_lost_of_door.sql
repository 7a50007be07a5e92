-- What a door had in flight in the name of gates whose leases have ended, and what was lost without a
-- document that says so, in ledger order after $2. Each half has an index; what is ambiguous and said
-- may be much, and is not looked at.
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
