-- Epoch that attached a bus last, its gate, and whether its lease is still valid.
SELECT held.value AS epoch, coalesce(gate.owner, '') AS owner,
       coalesce((extract(epoch FROM gate.alive_until) * 1000)::bigint, 0) AS lease_until,
       coalesce(admit_lease_holds(gate.alive_until, gate.lease_ms), false) AS is_alive
FROM meta AS held LEFT JOIN gate ON gate.epoch = held.value WHERE held.name = $1;
