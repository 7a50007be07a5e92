-- Whatever was issued after $1 and up to $2 is on stable storage. That makes good what gates left that
-- are gone, where they had come as far as $1 themselves.
UPDATE gate SET synced_to = greatest(synced_to, $2)
WHERE issued_to > synced_to AND synced_to >= $1 AND NOT admit_lease_holds(alive_until, lease_ms);
