-- The gate is alive for another while; nothing when it was late, and others may have taken over.
UPDATE gate SET alive_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
WHERE epoch = $1 AND alive_until > clock_timestamp() RETURNING 1;
