-- One row as long as nobody may take this gate for dead.
SELECT 1 FROM gate WHERE epoch = $1 AND admit_lease_holds(alive_until, lease_ms);
