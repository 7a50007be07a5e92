-- Everything issued after $1 and up to $2 is on stable storage. Updates dead gates whose own
-- progress had reached $1.
UPDATE gate SET synced_to = greatest(synced_to, $2)
WHERE issued_to > synced_to AND synced_to >= $1 AND NOT admit_lease_holds(alive_until, lease_ms);
