-- Ends the lease of a gate that stops, so that others can take over immediately.
UPDATE gate SET alive_until = clock_timestamp() WHERE epoch = $1 AND alive_until > clock_timestamp();
