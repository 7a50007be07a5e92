-- Ends the lease of earlier processes under an exclusive gate id.
UPDATE gate SET alive_until = clock_timestamp()
WHERE owner = $1 AND alive_until > clock_timestamp();
