-- Renews the lease of this gate. Updates nothing if the lease has expired, as others may have taken over.
UPDATE gate SET alive_until = clock_timestamp() + $2::bigint * interval '1 millisecond', lease_ms = $2
WHERE epoch = $1 AND admit_lease_holds(alive_until, lease_ms) RETURNING 1;
