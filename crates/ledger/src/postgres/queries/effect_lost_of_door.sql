-- What a door had in flight in the name of gates whose leases have ended, or has lost without a
-- document that says so, in ledger order after $2. The first condition is the one of the index.
SELECT e.* FROM effect e JOIN admission a ON a.seq = e.seq
WHERE e.state <> 'done' AND e.state IN ('in_flight', 'ambiguous') AND a.door = $1 AND e.seq > $2
  AND CASE e.state WHEN 'in_flight' THEN NOT EXISTS (
        SELECT 1 FROM gate g WHERE g.epoch = e.epoch AND g.alive_until > clock_timestamp())
      ELSE NOT EXISTS (
        SELECT 1 FROM issued i WHERE i.of = e.seq AND i.decision = 'QUARANTINE' AND i.seq = e.seq)
      END
ORDER BY e.seq LIMIT $3;
