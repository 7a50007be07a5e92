-- Whatever gates that are gone have issued up to here is on stable storage.
UPDATE gate SET synced_to = greatest(synced_to, $1)
WHERE issued_to > synced_to AND alive_until <= clock_timestamp();
