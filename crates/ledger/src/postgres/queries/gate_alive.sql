-- One row while the lease of this gate is valid.
SELECT 1 FROM gate WHERE epoch = $1 AND admit_lease_holds(alive_until, lease_ms);
